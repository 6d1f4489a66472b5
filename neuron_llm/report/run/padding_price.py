"""What running only the largest graphs costs in padding. Knows no torch."""

from __future__ import annotations

from neuron_llm.scheduler.buckets import BucketSet, PrefillBucket, get_bucket_for_count
from neuron_llm.scheduler.step_record import StepRecord


class PaddingPrice:
    """Compares the padding of steps with that in the smallest graphs that hold them.

    Padding is counted along the length of a prefill, and in the rows of a decode.

    Args:
        buckets: every graph that exists.

    Attributes:
        num_padded_tokens: tokens of padding in the graphs that ran.
        num_least_padded_tokens: tokens of padding in the smallest graphs that hold the steps.
    """

    def __init__(self, buckets: BucketSet) -> None:
        self._prefill_sizes = buckets.num_batched_tokens_buckets
        self._decode_sizes = buckets.num_seqs_buckets
        self.num_padded_tokens = 0
        self.num_least_padded_tokens = 0

    def add(self, step: StepRecord) -> None:
        """Count a step."""
        bucket = step.bucket
        if isinstance(bucket, PrefillBucket):
            num_real, size, sizes = step.num_tokens, bucket.num_tokens, self._prefill_sizes
        else:
            num_real, size, sizes = step.num_seqs, bucket.batch_size, self._decode_sizes
        self.num_padded_tokens += size - num_real
        self.num_least_padded_tokens += get_bucket_for_count(num_real, sizes) - num_real

    def to_json(self) -> dict[str, int]:
        """Return the two sums as JSON keys and values."""
        return {
            "num_padded_tokens": self.num_padded_tokens,
            "num_least_padded_tokens": self.num_least_padded_tokens,
        }
