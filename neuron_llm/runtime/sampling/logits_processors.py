"""What changes a request's logits before a token is chosen, greedily or not.

Each processor is made once per request, and only if the request asks for it. It knows the request's
own prompt and output, never what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from neuron_llm.runtime.sampling.sampling_params import SamplingParams


class LogitsProcessor(Protocol):
    """Changes the logits of one request."""

    def apply(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> None:
        """Change the logits in place.

        Args:
            logits: `[vocab_size]` float32.
            output_token_ids: all tokens of the output so far.
        """
        ...


class AllowedTokens:
    """Lets only the given tokens be chosen."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = torch.tensor(token_ids)

    def apply(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> None:
        """See `LogitsProcessor`."""
        kept = logits[self._token_ids]
        logits.fill_(-torch.inf)
        logits[self._token_ids] = kept


class BadWords:
    """Forbids the token that would complete a word whose other tokens have just been produced.

    Args:
        words: the tokens of each, at least one.
    """

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        self._words = [(prefix, last) for *prefix, last in words]

    def apply(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> None:
        """See `LogitsProcessor`."""
        for prefix, last in self._words:
            if not prefix or output_token_ids[-len(prefix) :] == prefix:
                logits[last] = -torch.inf


class EndingTokens:
    """Forbids the tokens that end an output, as long as it is too short.

    Args:
        token_ids: end-of-sequence and stop tokens; the model may lack logits for some.
    """

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._token_ids = torch.tensor(token_ids, dtype=torch.int64)

    def apply(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> None:
        """See `LogitsProcessor`."""
        logits[self._token_ids[self._token_ids < len(logits)]] = -torch.inf


class LogitBias:
    """Adds a bias to the logits of the given tokens."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._token_ids = torch.tensor(list(biases))
        self._biases = torch.tensor(list(biases.values()))

    def apply(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> None:
        """See `LogitsProcessor`."""
        logits[self._token_ids] += self._biases


class RepetitionPenalty:
    """Makes tokens of the prompt and the output less likely, or with a penalty under 1 more.

    Positive logits are divided by the penalty and negative ones multiplied, once, however often a
    token occurs.
    """

    def __init__(self, penalty: float, prompt_token_ids: Sequence[int]) -> None:
        self._penalty = penalty
        self._prompt_token_ids = torch.tensor(sorted(set(prompt_token_ids)), dtype=torch.int64)

    def apply(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> None:
        """See `LogitsProcessor`."""
        output = torch.tensor(output_token_ids, dtype=torch.int64)
        token_ids = torch.cat([self._prompt_token_ids, output])
        scores = logits[token_ids]
        # A token that is there twice is written twice, both times from what it was before.
        logits[token_ids] = torch.where(scores > 0, scores / self._penalty, scores * self._penalty)


class OutputPenalties:
    """Takes something off the logits of the output's tokens: for each time, and for being there.

    A token that occurs three times loses `3 * frequency_penalty + presence_penalty`.
    """

    def __init__(self, *, frequency_penalty: float, presence_penalty: float) -> None:
        self._frequency_penalty = frequency_penalty
        self._presence_penalty = presence_penalty

    def apply(self, logits: torch.Tensor, output_token_ids: Sequence[int]) -> None:
        """See `LogitsProcessor`."""
        output = torch.tensor(output_token_ids, dtype=torch.int64)
        counts = output.bincount(minlength=len(logits))
        logits -= self._frequency_penalty * counts
        logits -= self._presence_penalty * (counts > 0)


def logits_processors(
    params: SamplingParams,
    *,
    prompt_token_ids: Sequence[int],
    bad_words: Sequence[Sequence[int]],
    ending_token_ids: Sequence[int],
) -> tuple[LogitsProcessor, ...]:
    """Return what a request asks for, in the order in which it is applied; often nothing.

    Args:
        params: of the request.
        prompt_token_ids: counted by the repetition penalty.
        bad_words: the tokens of `params.bad_words`, see `bad_words_token_ids`.
        ending_token_ids: end-of-sequence and stop tokens.
    """
    processors: list[LogitsProcessor] = []
    if params.allowed_token_ids is not None:
        processors.append(AllowedTokens(params.allowed_token_ids))
    if bad_words:
        processors.append(BadWords(bad_words))
    if params.min_tokens:
        processors.append(EndingTokens(ending_token_ids))
    if params.logit_bias:
        processors.append(LogitBias(dict(params.logit_bias)))
    if params.repetition_penalty != 1:
        processors.append(RepetitionPenalty(params.repetition_penalty, prompt_token_ids))
    if params.frequency_penalty or params.presence_penalty:
        processors.append(
            OutputPenalties(
                frequency_penalty=params.frequency_penalty,
                presence_penalty=params.presence_penalty,
            )
        )
    return tuple(processors)
