"""Log probabilities as JSON: OpenAI's two objects, and vLLM's for a prompt. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any

from neuron_llm.runtime.engine.outputs import CompletionOutput, Logprob

LogprobsForm = Callable[[CompletionOutput], dict[str, Any]]
"""One of the two objects, of a completion that has log probabilities."""

_SMALLEST = -9999.0


def completion_logprobs(completion: CompletionOutput) -> dict[str, Any]:
    """Return the object of `/v1/completions`: parallel lists with an entry per token.

    `top_logprobs` holds the token's own too, so one more than was asked for if it is not among the
    most likely; of tokens with the same text only the first. `text_offset` counts characters.
    """
    tokens = _own(completion)
    texts = [token.decoded_token for token in tokens]
    top_logprobs: list[dict[str, float]] = []
    for by_token in completion.logprobs or ():
        by_text: dict[str, float] = {}
        for token in by_token.values():
            by_text.setdefault(token.decoded_token, _number(token))
        top_logprobs.append(by_text)
    return {
        "tokens": texts,
        "token_logprobs": [_number(token) for token in tokens],
        "top_logprobs": top_logprobs,
        "text_offset": list(accumulate(map(len, texts), initial=0))[: len(texts)],
    }


def chat_logprobs(completion: CompletionOutput, *, num_top: int) -> dict[str, Any]:
    """Return the object of `/v1/chat/completions`: `content`, a list with an object per token.

    Args:
        completion: has log probabilities.
        num_top: how many of the most likely tokens `top_logprobs` holds; -1 for all.
    """
    content = []
    for token, by_token in zip(_own(completion), completion.logprobs or (), strict=True):
        ranked = sorted(by_token.values(), key=lambda entry: entry.rank)
        top = ranked if num_top == -1 else ranked[:num_top]
        content.append({**_chat_entry(token), "top_logprobs": [_chat_entry(one) for one in top]})
    return {"content": content}


def prompt_logprobs(
    positions: Iterable[Mapping[int, Logprob] | None],
) -> list[dict[str, Any] | None]:
    """Return vLLM's list: null for the first token, then objects by token id."""
    return [
        None
        if by_token is None
        else {
            str(token_id): {
                "logprob": _number(token),
                "rank": token.rank,
                "decoded_token": token.decoded_token,
            }
            for token_id, token in by_token.items()
        }
        for by_token in positions
    ]


def _own(completion: CompletionOutput) -> list[Logprob]:
    """Return the entry of each of the completion's tokens."""
    pairs = zip(completion.token_ids, completion.logprobs or (), strict=True)
    return [by_token[token_id] for token_id, by_token in pairs]


def _chat_entry(token: Logprob) -> dict[str, Any]:
    text = token.decoded_token
    return {"token": text, "logprob": _number(token), "bytes": list(text.encode("utf-8"))}


def _number(token: Logprob) -> float:
    # JSON has no infinity; this is what OpenAI writes for what cannot be.
    return token.logprob if token.logprob > _SMALLEST else _SMALLEST
