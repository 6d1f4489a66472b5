"""Buckets: the static shapes that graphs are compiled for, and which of them holds a count."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from neuron_llm.errors import NoBucketError

MIN_DEFAULT_TOKENS_BUCKET = 128


@dataclass(frozen=True, order=True)
class PrefillBucket:
    """A graph that takes one request's chunk of up to `num_tokens` prompt tokens."""

    num_tokens: int

    @property
    def name(self) -> str:
        """The graph's name, `prefill_t128`."""
        return f"prefill_t{self.num_tokens}"


@dataclass(frozen=True, order=True)
class DecodeBucket:
    """A graph that takes one token each of up to `batch_size` requests.

    Attributes:
        batch_size: rows.
        max_context_tokens: most tokens that a row can attend to, its own included.
    """

    batch_size: int
    max_context_tokens: int

    @property
    def name(self) -> str:
        """The graph's name, `decode_b4_c512`."""
        return f"decode_b{self.batch_size}_c{self.max_context_tokens}"


Bucket = PrefillBucket | DecodeBucket


def get_bucket_for_count(count: int, buckets: Sequence[int]) -> int:
    """Return the smallest bucket >= `count` of an ascending list. 129 in [128, 256] is 256.

    Raises:
        NoBucketError: `count` is larger than the last bucket.
    """
    index = bisect_left(buckets, count)
    if index == len(buckets):
        largest = buckets[-1] if buckets else 0
        raise NoBucketError(f"no bucket holds {count} (largest: {largest})")
    return buckets[index]


def get_default_num_batched_tokens_buckets(max_num_batched_tokens: int) -> list[int]:
    """Return powers of two from 128 below the maximum, then the maximum itself.

    8192 gives [128, 256, 512, 1024, 2048, 4096, 8192], 3000 gives
    [128, 256, 512, 1024, 2048, 3000], 100 gives [100].
    """
    return _powers_of_two_then(MIN_DEFAULT_TOKENS_BUCKET, max_num_batched_tokens)


def get_default_num_seqs_buckets(max_num_seqs: int) -> list[int]:
    """Return powers of two from 1 below the maximum, then the maximum itself.

    6 gives [1, 2, 4, 6].
    """
    return _powers_of_two_then(1, max_num_seqs)


def _powers_of_two_then(first: int, maximum: int) -> list[int]:
    buckets = []
    current = first
    while current < maximum:
        buckets.append(current)
        current *= 2
    return [*buckets, maximum]


@dataclass(frozen=True)
class BucketSet:
    """The compiled buckets of one artifact.

    Attributes:
        prefill: ascending by `num_tokens`.
        decode: ascending by `batch_size`, then by `max_context_tokens`; every batch size has the
            same contexts.
    """

    prefill: tuple[PrefillBucket, ...]
    decode: tuple[DecodeBucket, ...]

    def __post_init__(self) -> None:
        """Check the order."""
        assert list(self.prefill) == sorted(set(self.prefill)), "prefill buckets must ascend"
        assert list(self.decode) == sorted(set(self.decode)), "decode buckets must ascend"

    @property
    def num_batched_tokens_buckets(self) -> list[int]:
        """Prefill sizes in tokens, ascending."""
        return [bucket.num_tokens for bucket in self.prefill]

    @property
    def num_seqs_buckets(self) -> list[int]:
        """Decode batch sizes, ascending."""
        return sorted({bucket.batch_size for bucket in self.decode})

    @property
    def all(self) -> tuple[Bucket, ...]:
        """Every bucket, prefill first."""
        return (*self.prefill, *self.decode)

    @property
    def largest(self) -> BucketSet:
        """The largest bucket of each phase alone; they hold whatever the others do."""
        return BucketSet(prefill=self.prefill[-1:], decode=self.decode[-1:])

    def pick_prefill_bucket(self, num_tokens: int) -> PrefillBucket:
        """Return the smallest prefill bucket that holds a chunk of `num_tokens`.

        Raises:
            NoBucketError: the chunk is larger than every bucket.
        """
        return PrefillBucket(get_bucket_for_count(num_tokens, self.num_batched_tokens_buckets))

    def pick_decode_bucket(self, num_seqs: int, context_tokens: int) -> DecodeBucket:
        """Return the smallest decode bucket that holds the batch.

        Args:
            num_seqs: rows.
            context_tokens: tokens that the longest row attends to, its own included.

        Raises:
            NoBucketError: too many rows, or too long a context.
        """
        batch_size = get_bucket_for_count(num_seqs, self.num_seqs_buckets)
        contexts = [b.max_context_tokens for b in self.decode if b.batch_size == batch_size]
        return DecodeBucket(batch_size, get_bucket_for_count(context_tokens, contexts))
