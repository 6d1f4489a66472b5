"""The text of single tokens, for whoever looks at log probabilities. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_llm.runtime.text.tokenizer import REPLACEMENT, Tokenizer

NUM_CONTEXT_TOKENS = 4
"""Tokens before one that can hold bytes of the same character: it has at most four."""


class TokenTexts:
    """Tells what text one token stands for, special tokens included.

    Args:
        tokenizer: the model's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}

    def text(self, token_id: int, context: Sequence[int]) -> str:
        """Return what the token adds to a text.

        Of tokens that hold bytes of one character, the one that completes it is the whole of it,
        and those before are empty. So the texts of successive tokens, joined, are the whole text,
        save for bytes that make no character.

        Args:
            token_id: the token.
            context: the tokens before it; the last `NUM_CONTEXT_TOKENS` count.
        """
        text = self._texts.get(token_id)
        if text is None:
            text = self._texts[token_id] = self._text_alone(token_id)
        if not text.endswith(REPLACEMENT):
            return text
        meant = self._tokenizer.replacement_token_ids
        if meant and [*context[-NUM_CONTEXT_TOKENS:], token_id][-len(meant) :] == meant:
            return REPLACEMENT
        for num_tokens in range(1, min(NUM_CONTEXT_TOKENS, len(context)) + 1):
            tail = list(context[-num_tokens:])
            whole = self._decode([*tail, token_id])
            if not whole.endswith(REPLACEMENT):
                return whole[len(self._decode(tail).rstrip(REPLACEMENT)) :]
        return text.rstrip(REPLACEMENT)

    def _text_alone(self, token_id: int) -> str:
        # At the start of a text, tokenizers with a mark for a space leave it out. So the token is
        # looked at behind another one, itself.
        first = self._decode([token_id])
        return self._decode([token_id, token_id])[len(first) :]

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)
