"""Strings that must not be generated, as the tokens by which they would be. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_llm.errors import RequestError
from neuron_llm.runtime.text.tokenizer import Tokenizer

MAX_BAD_WORDS = 128
"""The most token sequences of one request, as in vLLM."""


def bad_words_token_ids(tokenizer: Tokenizer, bad_words: Sequence[str]) -> list[list[int]]:
    """Return the token sequences that spell the words, at the start of a text and within one.

    As in vLLM, a word counts twice, without and with a space before it, if the second form has as
    many tokens as the first and begins with another one: `hello` is also ` hello`.

    Raises:
        RequestError: a word has no tokens, or there are too many (code `invalid_sampling`).
    """
    sequences: list[list[int]] = []
    for word in bad_words:
        alone = tokenizer.encode_part(word.lstrip())
        if not alone:
            raise RequestError(
                f"`bad_words` holds {word!r:.80}, which the tokenizer has no tokens for",
                code="invalid_sampling",
            )
        sequences.append(alone)
        within = tokenizer.encode_part(" " + word.lstrip())
        if len(within) == len(alone) and within[0] != alone[0]:
            sequences.append(within)
    if len(sequences) > MAX_BAD_WORDS:
        raise RequestError(
            f"`bad_words` comes to {len(sequences)} token sequences, more than {MAX_BAD_WORDS}",
            code="invalid_sampling",
            hint="give fewer words",
        )
    return sequences
