"""What padding cost, per bucket and in all, from the steps of a run. Knows no torch.

A step's tensors hold real tokens and padding. A prefill is padded in its length: 20 tokens in a
bucket of 32 leave 12. A decode is padded in its rows, one token each: 3 requests in a bucket of 4
leave 1. Apart from that, each real row of a decode has room for the bucket's context: 3 requests
with 100 tokens together in a bucket of 512 leave 3 * 512 - 100.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from neuron_llm.scheduler.buckets import Bucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord


@dataclass
class PaddingCounts:
    """Sums over steps.

    Attributes:
        num_uses: steps.
        num_real_tokens: tokens that were computed because a request needed them.
        num_length_padded_tokens: padding behind the tokens of prefills.
        num_row_padded_tokens: padding rows of decodes, one token each.
        num_cached_tokens: prompt tokens that needed no prefill, by the step that began behind them.
        num_decode_context_tokens: tokens that the real rows of decodes attended to.
        num_context_padded_tokens: the rest of the context that those rows had room for.
        seconds: time in the graph.
    """

    num_uses: int = 0
    num_real_tokens: int = 0
    num_length_padded_tokens: int = 0
    num_row_padded_tokens: int = 0
    num_cached_tokens: int = 0
    num_decode_context_tokens: int = 0
    num_context_padded_tokens: int = 0
    seconds: float = 0.0

    @property
    def num_padded_tokens(self) -> int:
        """Tokens of padding, along the length or in rows."""
        return self.num_length_padded_tokens + self.num_row_padded_tokens

    @property
    def padding_ratio(self) -> float | None:
        """The share of padding in all computed tokens; None without any."""
        return _ratio(self.num_padded_tokens, self.num_real_tokens)

    @property
    def context_padding_ratio(self) -> float | None:
        """The share of a decode's context slots that hold no token; None without decodes."""
        return _ratio(self.num_context_padded_tokens, self.num_decode_context_tokens)

    @property
    def mean_ms(self) -> float | None:
        """Time of one step in the graph, in milliseconds; None without steps or their times."""
        return self.seconds * 1e3 / self.num_uses if self.num_uses and self.seconds else None

    @classmethod
    def sum_of(cls, parts: Iterable[PaddingCounts]) -> PaddingCounts:
        """Return the sums over several."""
        total = cls()
        for part in parts:
            total.add(part)
        return total

    def add(self, other: PaddingCounts) -> None:
        """Add another's sums to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def to_json(self) -> dict[str, Any]:
        """Return sums and ratios as JSON keys and values."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "num_padded_tokens": self.num_padded_tokens,
            "padding_ratio": self.padding_ratio,
            "context_padding_ratio": self.context_padding_ratio,
            "mean_ms": self.mean_ms,
        }


def counts_of(step: StepRecord) -> PaddingCounts:
    """Return the sums of a single step."""
    bucket = step.bucket
    if isinstance(bucket, PrefillBucket):
        return PaddingCounts(
            num_uses=1,
            num_real_tokens=step.num_tokens,
            num_length_padded_tokens=bucket.num_tokens - step.num_tokens,
            num_cached_tokens=step.num_cached_tokens,
            seconds=step.seconds,
        )
    return PaddingCounts(
        num_uses=1,
        num_real_tokens=step.num_tokens,
        num_row_padded_tokens=bucket.batch_size - step.num_seqs,
        num_cached_tokens=step.num_cached_tokens,
        num_decode_context_tokens=step.num_context_tokens,
        num_context_padded_tokens=(
            step.num_seqs * bucket.max_context_tokens - step.num_context_tokens
        ),
        seconds=step.seconds,
    )


class PaddingAccount:
    """Adds up the steps of a run.

    Args:
        buckets: every graph that exists; those that no step uses stay at 0.

    Attributes:
        by_bucket: the sums of each bucket, in the order given.
    """

    def __init__(self, buckets: Iterable[Bucket]) -> None:
        self.by_bucket = {bucket: PaddingCounts() for bucket in buckets}

    def add(self, step: StepRecord) -> None:
        """Count a step."""
        self.by_bucket[step.bucket].add(counts_of(step))

    @property
    def total(self) -> PaddingCounts:
        """The sums over all buckets."""
        return PaddingCounts.sum_of(self.by_bucket.values())

    def to_json(self) -> dict[str, Any]:
        """Return every bucket's sums and those of all."""
        return {
            "graphs": [
                {"graph": bucket.name, **counts.to_json()}
                for bucket, counts in self.by_bucket.items()
            ],
            "total": self.total.to_json(),
        }


def _ratio(padded: int, real: int) -> float | None:
    return padded / (padded + real) if padded + real else None
