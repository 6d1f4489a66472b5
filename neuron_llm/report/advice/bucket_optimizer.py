"""The prefill buckets that leave the least padding for a workload, exactly. Knows no torch.

A chunk of n tokens costs the smallest bucket that holds it, so buckets b1 < ... < bk = M cost

    sum over i of  b_i * (number of chunks in (b_(i-1), b_i])

and what exceeds the real tokens is padding. Only sizes just large enough for some chunk need be
looked at: a bucket that is larger than its largest chunk can shrink to it. With these sizes e_j and
C_j, the number of chunks that fit into e_j, the least cost of the chunks up to e_j in k buckets is

    least_k(j) = min over i < j of  least_(k-1)(i) + e_j * (C_j - C_i)

For each i that is a line in e_j with the slope -C_i. The slopes fall as i grows and e_j ascends, so
that the lowest line at every e_j is found by a pointer that only moves forward over the lower
envelope of the lines: a bucket more costs one pass over the sizes. All numbers are integers, so
nothing is rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.scheduler.block_pool import ceil_div


@dataclass(frozen=True)
class BucketLimits:
    """What a bucket list has to keep to.

    Attributes:
        max_chunk_tokens: the largest chunk of a prompt, in which every list ends.
        max_graphs: most buckets.
        granularity: every bucket but the last is a multiple of it.
    """

    max_chunk_tokens: int
    max_graphs: int
    granularity: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        assert min(self.max_chunk_tokens, self.max_graphs, self.granularity) >= 1


def optimal_buckets(lengths: LengthHistogram, limits: BucketLimits) -> tuple[int, ...]:
    """Return the list with the least padding; of several such lists, one with the fewest buckets.

    Chunks of 3, 6 and 6 tokens are held best by [6, 8], of the lists of two that end in 8.

    Args:
        lengths: tokens of each prompt, or of its chunks: longer ones are cut into chunks.
        limits: what the list has to keep to.
    """
    return optimal_bucket_lists(lengths, limits)[-1]


def optimal_bucket_lists(lengths: LengthHistogram, limits: BucketLimits) -> list[tuple[int, ...]]:
    """Return the list with the least padding for 1 bucket, for 2, and so on.

    Each leaves less padding than the one before, so the lists end at `limits.max_graphs` buckets,
    or earlier where one more would change nothing.

    Args:
        lengths: tokens of each prompt, or of its chunks: longer ones are cut into chunks.
        limits: what the lists have to keep to.
    """
    sizes, num_fitting = _candidates(lengths, limits)
    least = [size * count for size, count in zip(sizes, num_fitting, strict=True)]
    before: list[list[int]] = []
    lists: list[tuple[int, ...]] = [(sizes[-1],)]
    for num_buckets in range(2, min(limits.max_graphs, len(sizes)) + 1):
        least, chosen = _with_one_more(least, num_buckets, sizes, num_fitting)
        before.append(chosen)
        lists.append(tuple(_trace_back(before, sizes)))
    return lists


def _candidates(lengths: LengthHistogram, limits: BucketLimits) -> tuple[list[int], list[int]]:
    """Return the sizes worth looking at, the last `max_chunk_tokens`, and how many chunks fit."""
    largest, step = limits.max_chunk_tokens, limits.granularity
    counts = Counter({largest: 0})
    for length, count in lengths.chunked(largest).counts.items():
        counts[min(ceil_div(length, step) * step, largest)] += count
    sizes = sorted(counts)
    return sizes, list(accumulate(counts[size] for size in sizes))


def _with_one_more(
    fewer: Sequence[int], num_buckets: int, sizes: Sequence[int], num_fitting: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the least cost up to each size in `num_buckets` buckets, and the bucket before it.

    Args:
        fewer: the least cost up to each size in one bucket fewer. Of it, and of what is returned,
            the first sizes have too few sizes below them, and mean nothing.
        num_buckets: at least 2.
        sizes: ascending.
        num_fitting: how many chunks fit into each.
    """
    least, before = [0] * len(sizes), [0] * len(sizes)
    # Indices of the lines that are lowest somewhere, in the order in which they are.
    lines: list[int] = []
    lowest = 0
    for j in range(num_buckets - 1, len(sizes)):
        while len(lines) - lowest >= 2 and not _is_needed(
            lines[-2], lines[-1], j - 1, fewer, num_fitting
        ):
            lines.pop()
        lines.append(j - 1)
        size = sizes[j]
        best = lines[lowest]
        value = fewer[best] - num_fitting[best] * size
        while lowest + 1 < len(lines):
            following = lines[lowest + 1]
            value_there = fewer[following] - num_fitting[following] * size
            if value_there > value:
                break
            best, value, lowest = following, value_there, lowest + 1
        least[j] = value + size * num_fitting[j]
        before[j] = best
    return least, before


def _is_needed(
    above: int, between: int, below: int, offsets: Sequence[int], num_fitting: Sequence[int]
) -> bool:
    """Whether the line `between` falls below the one before it earlier than the one behind does."""
    run_between = num_fitting[between] - num_fitting[above]
    run_below = num_fitting[below] - num_fitting[above]
    rise_between = offsets[between] - offsets[above]
    rise_below = offsets[below] - offsets[above]
    return rise_between * run_below < rise_below * run_between


def _trace_back(before: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    """Return the ascending buckets that the choices for the last size lead back to."""
    index = len(sizes) - 1
    buckets = [sizes[index]]
    for chosen in reversed(before):
        index = chosen[index]
        buckets.append(sizes[index])
    return buckets[::-1]
