"""Which counts a bucket serves, and how much of it is padding at worst.

A bucket takes the counts that the next smaller bucket does not hold. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuron_llm.scheduler.buckets import Bucket, BucketSet, PrefillBucket


@dataclass(frozen=True)
class BucketRange:
    """The counts of the steps that run in one bucket.

    Attributes:
        bucket: the bucket.
        min_count: fewest tokens of a prefill, or requests of a decode.
        max_count: most of them: the bucket's own size.
        min_context_tokens: of a decode, fewest tokens of its longest request; None for a prefill.
        max_context_tokens: of a decode, most of them; None for a prefill.
    """

    bucket: Bucket
    min_count: int
    max_count: int
    min_context_tokens: int | None
    max_context_tokens: int | None

    @property
    def worst_padding_ratio(self) -> float:
        """The share of padding at the least count: 33 tokens in a bucket of 128 leave 0.742."""
        return (self.max_count - self.min_count) / self.max_count

    @property
    def description(self) -> str:
        """The range in words, `33-128 prompt tokens`."""
        counts = _span(self.min_count, self.max_count)
        if self.max_context_tokens is None:
            return f"{counts} prompt tokens"
        noun = "request" if self.max_count == 1 else "requests"
        assert self.min_context_tokens is not None
        context = _span(self.min_context_tokens, self.max_context_tokens)
        return f"{counts} {noun}, context {context}"

    def to_json(self) -> dict[str, Any]:
        """Return the range as JSON keys and values."""
        ratio = {"worst_padding_ratio": self.worst_padding_ratio}
        if self.max_context_tokens is None:
            return {
                "phase": "prefill",
                "min_tokens": self.min_count,
                "max_tokens": self.max_count,
                **ratio,
            }
        return {
            "phase": "decode",
            "min_seqs": self.min_count,
            "max_seqs": self.max_count,
            "min_context_tokens": self.min_context_tokens,
            "max_context_tokens": self.max_context_tokens,
            **ratio,
        }


def bucket_ranges(buckets: BucketSet) -> dict[Bucket, BucketRange]:
    """Return the range of every bucket of a set, in the set's order.

    Prefill buckets 32 and 128 serve 1-32 and 33-128 tokens.
    """
    contexts = sorted({bucket.max_context_tokens for bucket in buckets.decode})
    ranges: dict[Bucket, BucketRange] = {}
    for bucket in buckets.all:
        if isinstance(bucket, PrefillBucket):
            first = _first_served(bucket.num_tokens, buckets.num_batched_tokens_buckets)
            ranges[bucket] = BucketRange(bucket, first, bucket.num_tokens, None, None)
            continue
        context = bucket.max_context_tokens
        ranges[bucket] = BucketRange(
            bucket,
            _first_served(bucket.batch_size, buckets.num_seqs_buckets),
            bucket.batch_size,
            _first_served(context, contexts),
            context,
        )
    return ranges


def _first_served(size: int, sizes: Sequence[int]) -> int:
    """Return the least count that `size` serves: one more than the next smaller size."""
    return max((smaller for smaller in sizes if smaller < size), default=0) + 1


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
