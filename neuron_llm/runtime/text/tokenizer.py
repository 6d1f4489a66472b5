"""Text and messages to token ids and back, through the model's own tokenizer files.

Reads nothing but the given directory: no hub, no remote code. transformers is imported when a
tokenizer is loaded, not with this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, TemplateSyntaxError

from neuron_llm.artifact.tokenizer_files import load_tokenizer_files
from neuron_llm.errors import (
    ArtifactError,
    RequestError,
)

if TYPE_CHECKING:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

# What the expressions of a template may raise, besides what it raises itself.
_TEMPLATE_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What bytes that are no text decode to."""


class Tokenizer:
    """A model's tokenizer: encodes with exactly one begin-of-sequence token where there is one.

    Args:
        pretrained: a transformers tokenizer that has a `tokenizers` backend.

    Attributes:
        backend: the Rust tokenizer; truncation and padding are off.
        bos_token_id: None if the tokenizer names none.
        eos_token_id: None if the tokenizer names none.
        adds_bos: whether the tokenizer itself puts `bos_token_id` in front of a text.
    """

    def __init__(self, pretrained: PreTrainedTokenizerFast) -> None:
        self._pretrained = pretrained
        self.backend: tokenizers.Tokenizer = pretrained.backend_tokenizer
        # A tokenizer.json may carry the lengths of its training run, which would cut prompts.
        self.backend.no_truncation()
        self.backend.no_padding()
        self.bos_token_id: int | None = pretrained.bos_token_id
        self.eos_token_id: int | None = pretrained.eos_token_id
        prefix = self.backend.encode("", add_special_tokens=True).ids[:1]
        self.adds_bos = self.bos_token_id is not None and prefix == [self.bos_token_id]
        added_tokens = self.backend.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added_tokens.items() if token.special)

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Load the tokenizer files in `directory`.

        See `load_tokenizer_files` for what it raises.
        """
        return cls(load_tokenizer_files(directory))

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be encoded without giving a template."""
        return bool(self._pretrained.chat_template)

    def encode_prompt(self, text: str) -> list[int]:
        """Return the tokens of a plain text.

        Where the tokenizer adds a begin-of-sequence token and the text starts with it already,
        there is still one.

        Raises:
            RequestError: the text yields no token (code `empty_prompt`) or is no valid Unicode
                (code `invalid_unicode`).
        """
        token_ids = self._encode(text, add_special_tokens=True)
        if self.adds_bos and token_ids[:2] == [self.bos_token_id] * 2:
            del token_ids[0]
        if not token_ids:
            raise RequestError(
                "the prompt is empty and the tokenizer adds no begin-of-sequence token",
                code="empty_prompt",
                hint="give the prompt at least one character",
            )
        return token_ids

    def encode_messages(
        self, messages: Sequence[Mapping[str, Any]], *, chat_template: str | None = None
    ) -> list[int]:
        """Return the tokens of a conversation, ready for the assistant's reply.

        The begin-of-sequence token is there once if the template writes it, the tokenizer adds it,
        or both; a model that was trained without one gets none.

        Args:
            messages: objects with `role` and `content`, oldest first.
            chat_template: a Jinja template that replaces the model's.

        Raises:
            RequestError: there is no template (code `no_chat_template`), it has a syntax error
                (code `invalid_chat_template`) or refuses the messages (code `invalid_messages`).
        """
        if chat_template is None and not self.has_chat_template:
            raise RequestError(
                "the model has no chat template",
                code="no_chat_template",
                hint="give one with `--template FILE`, or send plain text (`--raw`, `prompt`)",
            )
        try:
            text: str = self._pretrained.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=chat_template,
                tokenize=False,
                add_generation_prompt=True,
            )
        except _TEMPLATE_ERRORS as error:
            raise _refused_by_template(error) from error
        # Only the begin-of-sequence token: what else a tokenizer adds (an end-of-sequence token
        # behind the text) would end the conversation before the reply.
        token_ids = self._encode(text, add_special_tokens=False)
        if self.adds_bos and token_ids[:1] != [self.bos_token_id]:
            assert self.bos_token_id is not None
            token_ids.insert(0, self.bos_token_id)
        return token_ids

    def encode_part(self, text: str) -> list[int]:
        """Return the tokens of a piece of text alone, without any that the tokenizer adds.

        Raises:
            RequestError: it is no valid Unicode (code `invalid_unicode`).
        """
        return self._encode(text, add_special_tokens=False)

    @cached_property
    def replacement_token_ids(self) -> list[int]:
        """The tokens of a replacement character that is meant, as one may stand in a text.

        Bytes that are no text decode to one too. Empty where the tokens cannot be told.
        """
        one, two = (self.encode_part("a" + count * REPLACEMENT) for count in (1, 2))
        added = two[len(one) :]
        return added if added and two == one + added and one[-len(added) :] == added else []

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `token_ids`; ids past the vocabulary stand for nothing."""
        return self.backend.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def has_text(self, token_id: int, *, skip_special_tokens: bool) -> bool:
        """Whether `decode` takes notice of the token at all."""
        if skip_special_tokens and token_id in self._special_ids:
            return False
        return self.backend.id_to_token(token_id) is not None

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            ids: list[int] = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError as error:
            raise RequestError(
                "the text holds half of a surrogate pair, which is no character",
                code="invalid_unicode",
            ) from error
        return ids


def eos_token_ids(artifact_dir: Path, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return every token that ends a sequence, the tokenizer's own first.

    Models disagree with themselves: the tokenizer names one, `generation_config.json` several,
    `config.json` another. Generation stops on any of them.

    Args:
        artifact_dir: holds `config.json` and `generation_config.json`; either may be absent.
        tokenizer: the model's.

    Raises:
        ArtifactError: one of the two is no JSON object.
    """
    ids = [tokenizer.eos_token_id]
    for name in ("generation_config.json", "config.json"):
        path = artifact_dir / name
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if not isinstance(config, dict):
            raise ArtifactError(
                f"`{path}` is no JSON object",
                hint="compile again with a model whose file is right: `neuron-llm compile CONFIG`",
            )
        for owner in (config, config.get("text_config") or {}):
            eos = owner.get("eos_token_id")
            ids.extend(eos if isinstance(eos, list) else [eos])
    return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))


def _refused_by_template(error: Exception) -> RequestError:
    if isinstance(error, TemplateSyntaxError):
        return RequestError(
            f"the chat template is wrong in line {error.lineno}: {_first_line(error)}",
            code="invalid_chat_template",
        )
    return RequestError(
        f"the chat template refuses the messages: {_first_line(error)}", code="invalid_messages"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
