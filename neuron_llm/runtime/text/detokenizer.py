"""Token ids to text, one at a time, for one request."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.text.stop_strings import StopStringMatcher
from neuron_llm.runtime.text.tokenizer import REPLACEMENT, Tokenizer

_NUM_CONTEXT_TOKENS = 5
"""Tokens of the prompt that the output is decoded behind: whether a token begins with a space can
depend on the one before it."""

_MAX_CHARACTER_TOKENS = 4
"""A character has at most four bytes, so at most four tokens without text of their own."""

_MAX_PENDING_TOKENS = 16
"""So many tokens without a whole character hold bytes that are none, and must not pile up."""


class IncrementalDetokenizer:
    """Turns one request's tokens into text as they come.

    The pieces never end in half a character, and joined they are the text that the tokenizer gives
    the whole output, behind the prompt. Each token costs two decodes of a few tokens, whatever the
    length of the output. Only bytes that are no text can differ: a tokenizer that falls back to
    bytes judges a run of them as a whole, and characters already out are not taken back.

    Args:
        tokenizer: the model's.
        prompt_token_ids: what the output follows.
        params: stop strings, `min_tokens` and what to leave in the text.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], params: SamplingParams
    ) -> None:
        self._tokenizer = tokenizer
        self._params = params
        self._matcher = StopStringMatcher(
            params.stop, include_in_output=params.include_stop_str_in_output
        )
        # New text is what the window's text is longer by than before. The window holds the tokens
        # of the last text that came out, as context, and behind them those that wait.
        self._window = self._context_of(prompt_token_ids)
        self._num_context_tokens = len(self._window)
        self._num_context_chars = len(self._decode(self._window))
        self._pieces: list[str] = []
        self._num_tokens = 0

    @property
    def text(self) -> str:
        """What `push` and `finish` have returned so far, joined."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def stop_reason(self) -> str | None:
        """The stop string that ended the text; tokens pushed after it give no more text."""
        return self._matcher.matched

    def push(self, token_id: int) -> str:
        """Add one output token and return the text that can be shown now, often empty."""
        self._add(token_id)
        text = self._decode(self._window)
        if len(text) > self._num_context_chars and not text.endswith(REPLACEMENT):
            new_text = text[self._num_context_chars :]
            self._begin_window(self._num_context_tokens)
            return self._show(new_text)
        if len(self._window) - self._num_context_tokens > _MAX_PENDING_TOKENS:
            return self._show(self._give_up_pending(text))
        return ""

    def finish(self, *, ending_token_id: int) -> str:
        """Return the rest of the text, with replacement characters for bytes that are none.

        Args:
            ending_token_id: the end-of-sequence or stop token that ended the request, in place of
                pushing it. It is text only with `include_stop_str_in_output`.
        """
        if self._params.include_stop_str_in_output:
            self._add(ending_token_id)
        return self._end(self._decode(self._window)[self._num_context_chars :])

    def cut(self) -> str:
        """Return the rest of the text where a limit ended it, not the model.

        The bytes of a character that has only begun are left out: shown, they would be a
        replacement character that the model never meant.
        """
        rest = self._decode(self._window)[self._num_context_chars :]
        meant = self._tokenizer.replacement_token_ids
        is_meant = bool(meant) and self._window[-len(meant) :] == meant
        return self._end(rest if is_meant else rest.rstrip(REPLACEMENT))

    def _end(self, rest: str) -> str:
        self._begin_window(len(self._window))
        shown = self._show(rest)
        withheld = self._matcher.flush()
        self._pieces.append(withheld)
        return shown + withheld

    def _add(self, token_id: int) -> None:
        self._num_tokens += 1
        # A token without text must not be context: what follows it would be decoded as a beginning.
        if self._has_text(token_id):
            self._window.append(token_id)

    def _show(self, text: str) -> str:
        may_match = self._num_tokens > self._params.min_tokens
        shown = self._matcher.push(text, may_match=may_match)
        self._pieces.append(shown)
        return shown

    def _begin_window(self, first: int) -> None:
        """Make the window's tokens from `first` on the new context: their text is out."""
        self._window = self._window[first:]
        self._num_context_tokens = len(self._window)
        self._num_context_chars = len(self._decode(self._window))

    def _give_up_pending(self, text: str) -> str:
        """Return the waiting text save a last replacement character, and shorten the window.

        That one may still become a character; those before it are followed by something and so
        are final. The last four tokens hold every byte it can consist of.
        """
        num_open = 1 if text.endswith(REPLACEMENT) else 0
        new_text = text[self._num_context_chars : len(text) - num_open]
        self._window = self._window[-_MAX_CHARACTER_TOKENS:]
        self._num_context_tokens = 0
        self._num_context_chars = max(0, len(self._decode(self._window)) - num_open)
        return new_text

    def _context_of(self, prompt_token_ids: Sequence[int]) -> list[int]:
        context: list[int] = []
        for token_id in reversed(prompt_token_ids):
            # Beginning within a character would spoil those behind it.
            is_long_enough = len(context) >= _NUM_CONTEXT_TOKENS
            if is_long_enough and not self._decode(context[::-1]).startswith(REPLACEMENT):
                break
            if len(context) == _NUM_CONTEXT_TOKENS + _MAX_CHARACTER_TOKENS:
                break
            if self._has_text(token_id):
                context.append(token_id)
        return context[::-1]

    def _has_text(self, token_id: int) -> bool:
        return self._tokenizer.has_text(
            token_id, skip_special_tokens=self._params.skip_special_tokens
        )

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(
            token_ids, skip_special_tokens=self._params.skip_special_tokens
        )
