"""What a list of prefill buckets makes of a workload: its steps, and the padding in each bucket.

Works out without a run what the step log of one would say. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from neuron_llm.report.run.padding import PaddingCounts
from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.scheduler.buckets import PrefillBucket, get_bucket_for_count


@dataclass(frozen=True)
class PrefillScore:
    """The prefill steps of a workload under a list of buckets.

    Attributes:
        by_bucket: the sums of each bucket, without times, ascending; the last bucket is the largest
            chunk of a prompt.
    """

    by_bucket: Mapping[PrefillBucket, PaddingCounts]

    @property
    def buckets(self) -> tuple[int, ...]:
        """The list: sizes in tokens, ascending."""
        return tuple(bucket.num_tokens for bucket in self.by_bucket)

    @property
    def num_graphs(self) -> int:
        """How many graphs the list compiles to."""
        return len(self.by_bucket)

    @cached_property
    def total(self) -> PaddingCounts:
        """The sums over all buckets; `num_uses` counts the steps."""
        return PaddingCounts.sum_of(self.by_bucket.values())

    @property
    def num_padded_tokens(self) -> int:
        """Tokens of padding in all steps."""
        return self.total.num_padded_tokens

    @property
    def padding_ratio(self) -> float:
        """The share of padding in all computed tokens; 0 without any."""
        return self.total.padding_ratio or 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the list and its sums as JSON keys and values."""
        return {
            "num_batched_tokens_buckets": list(self.buckets),
            "num_graphs": self.num_graphs,
            "num_steps": self.total.num_uses,
            "num_real_tokens": self.total.num_real_tokens,
            "num_padded_tokens": self.num_padded_tokens,
            "padding_ratio": self.padding_ratio,
        }


def score_prefill(
    lengths: LengthHistogram,
    buckets: Sequence[int],
    cached_tokens: Mapping[int, int] | None = None,
) -> PrefillScore:
    """Count the steps of prompts under a list of buckets.

    A prompt longer than the last bucket is computed in chunks of that size and a rest. With 8 and
    16, one of 20 tokens takes a step of 16 and one of 4, padded to 8.

    Args:
        lengths: tokens of each prompt that have to be computed.
        buckets: ascending.
        cached_tokens: by such a length, the tokens that prompts of it found in the prefix cache,
            summed over those prompts; they count where the first chunk does. None for none.
    """
    max_chunk_tokens = buckets[-1]
    counts = {size: PaddingCounts() for size in buckets}
    for length, num_chunks in lengths.chunked(max_chunk_tokens).counts.items():
        size = get_bucket_for_count(length, buckets)
        counts[size].num_uses += num_chunks
        counts[size].num_real_tokens += length * num_chunks
        counts[size].num_length_padded_tokens += (size - length) * num_chunks
    for length, num_cached_tokens in (cached_tokens or {}).items():
        size = get_bucket_for_count(min(length, max_chunk_tokens), buckets)
        counts[size].num_cached_tokens += num_cached_tokens
    return PrefillScore({PrefillBucket(size): counts[size] for size in buckets})
