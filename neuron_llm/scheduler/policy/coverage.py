"""Which shapes the scheduler can emit, which buckets they need, and whether each has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neuron_llm.errors import NoBucketError
from neuron_llm.scheduler.block_pool import num_blocks_for
from neuron_llm.scheduler.buckets import Bucket, BucketSet


@dataclass(frozen=True, kw_only=True)
class ReachableShapes:
    """The greatest counts that can occur. Whatever holds them holds every smaller one.

    Attributes:
        max_prompt_tokens: tokens of a prompt.
        max_chunk_tokens: prompt tokens of one prefill step.
        max_decode_seqs: requests of one decode step.
        max_context_tokens: tokens of the longest request in a decode step, that step's included.
    """

    max_prompt_tokens: int
    max_chunk_tokens: int
    max_decode_seqs: int
    max_context_tokens: int


@dataclass(frozen=True)
class UnreachableBucket:
    """A bucket that was asked for and is not compiled.

    Attributes:
        bucket: the graph that is left out.
        reason: why no step can need it.
    """

    bucket: Bucket
    reason: str


def reachable_shapes(
    *,
    max_model_len: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    num_usable_blocks: int,
    blocks_per_request: int,
) -> ReachableShapes:
    """Return the greatest counts that can occur.

    A prompt leaves room for at least one token of output, so the longest is one less than
    `max_model_len`; chunks are counted to the budget all the same, in which the last prefill bucket
    must end. The KV of a request's last token is never written, so the longest context is
    one less as well; the shortest of a decode step is 2, a token of prompt and one of output.

    Args:
        max_model_len: prompt and output together.
        max_num_batched_tokens: most tokens of one prefill step.
        max_num_seqs: most requests running together.
        num_usable_blocks: KV blocks without the null block.
        blocks_per_request: fewest blocks that admission sets aside for a request: 1 where a
            request reserves what it needs, since no two requests write into one block.
    """
    return ReachableShapes(
        max_prompt_tokens=max_model_len - 1,
        max_chunk_tokens=min(max_num_batched_tokens, max_model_len),
        max_decode_seqs=min(max_num_seqs, num_usable_blocks // blocks_per_request),
        max_context_tokens=max(max_model_len - 1, 2),
    )


def min_blocks_per_request(kv_admission: str, max_model_len: int, block_size: int) -> int:
    """Return the fewest blocks that admission sets aside for a request."""
    return 1 if kv_admission == "reserve" else num_blocks_for(max_model_len, block_size)


def split_reachable(buckets: Sequence[int], greatest: int) -> tuple[list[int], list[int]]:
    """Split an ascending list into the buckets that can be needed and those that cannot.

    A bucket cannot be needed when the next smaller one already holds the greatest count. With 5 as
    the greatest, [1, 2, 4, 8] needs all four, and 16 behind them would not be.
    """
    needed = [
        bucket
        for index, bucket in enumerate(buckets)
        if index == 0 or buckets[index - 1] < greatest
    ]
    return needed, list(buckets[len(needed) :])


def check_coverage(buckets: BucketSet, shapes: ReachableShapes) -> tuple[str, ...]:
    """Return a sentence for every shape found without a bucket; an empty tuple proves coverage.

    The bucket of a count changes only just above a bucket, so looking at the counts on both sides
    of every step, and at the ends of the range, looks at all of them.
    """
    return (*_uncovered_chunks(buckets, shapes), *_uncovered_decodes(buckets, shapes))


def _uncovered_chunks(buckets: BucketSet, shapes: ReachableShapes) -> Iterator[str]:
    sizes = buckets.num_batched_tokens_buckets
    for num_tokens in _counts_at_steps(sizes, shapes.max_chunk_tokens):
        try:
            buckets.pick_prefill_bucket(num_tokens)
        except NoBucketError:
            yield f"a prefill step of {num_tokens} tokens has no bucket (largest: {_last(sizes)})"


def _uncovered_decodes(buckets: BucketSet, shapes: ReachableShapes) -> Iterator[str]:
    contexts = sorted({bucket.max_context_tokens for bucket in buckets.decode})
    for num_seqs in _counts_at_steps(buckets.num_seqs_buckets, shapes.max_decode_seqs):
        for context_tokens in _counts_at_steps(contexts, shapes.max_context_tokens):
            try:
                buckets.pick_decode_bucket(num_seqs, context_tokens)
            except NoBucketError:
                yield (
                    f"a decode step of {num_seqs} requests with up to {context_tokens} tokens of"
                    f" context has no bucket (largest: {_last(buckets.num_seqs_buckets)} requests,"
                    f" {_last(contexts)} tokens)"
                )


def _counts_at_steps(steps: Sequence[int], greatest: int) -> list[int]:
    counts = {1, greatest, *steps, *(step + 1 for step in steps)}
    return sorted(count for count in counts if 1 <= count <= greatest)


def _last(sizes: Sequence[int]) -> int:
    return sizes[-1] if sizes else 0
