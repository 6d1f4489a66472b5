"""Log probabilities of tokens: the log-softmax of the model's logits, as it gave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log probabilities at one position of a text.

    Attributes:
        token_ids: the token that stands there, then the most likely ones in order, among which it
            may be again.
        logprobs: of each.
        rank: how many tokens are at least as likely as the one that stands there, itself included.
    """

    token_ids: list[int]
    logprobs: list[float]
    rank: int


def token_logprobs(logits: torch.Tensor, token_id: int, num_logprobs: int) -> TokenLogprobs:
    """Return the log probability of a token and those of the most likely ones.

    One position at a time, so that nothing depends on what it is computed together with.

    Args:
        logits: `[vocab_size]`, any float dtype, as the model gave them.
        token_id: the token that stands there.
        num_logprobs: how many of the most likely ones; -1 for the whole vocabulary.
    """
    logprobs = logits.log_softmax(dim=-1, dtype=torch.float32)
    own = logprobs[token_id]
    count = len(logprobs) if num_logprobs == -1 else num_logprobs
    largest = logprobs.topk(count)
    return TokenLogprobs(
        token_ids=[token_id, *largest.indices.tolist()],
        logprobs=[own.item(), *largest.values.tolist()],
        rank=int((logprobs >= own).sum()),
    )


class PromptScores:
    """The log probabilities of a prompt's tokens, taken in as its chunks are computed.

    Args:
        prompt_token_ids: the whole prompt.
        num_logprobs: see `token_logprobs`.

    Attributes:
        tokens: those of the second token and the ones after it, as far as they are known.
        is_finite: whether every position had a finite largest logit.
    """

    def __init__(self, prompt_token_ids: Sequence[int], num_logprobs: int) -> None:
        self._prompt_token_ids = prompt_token_ids
        self._num_logprobs = num_logprobs
        self.tokens: list[TokenLogprobs] = []
        self.is_finite = True

    def add(self, logits: torch.Tensor) -> None:
        """Take in the next positions; the last of the prompt tells of no prompt token.

        Args:
            logits: `[num_positions, vocab_size]`, any float dtype.
        """
        self.is_finite &= bool(logits.max(dim=-1).values.isfinite().all())
        targets = self._prompt_token_ids[len(self.tokens) + 1 :]
        for row, token_id in zip(logits, targets, strict=False):
            self.tokens.append(token_logprobs(row, token_id, self._num_logprobs))
