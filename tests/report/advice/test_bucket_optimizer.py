"""The optimiser against every possible list, and what the lists that it returns look like."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.advice.bucket_optimizer import (
    BucketLimits,
    optimal_bucket_lists,
    optimal_buckets,
)
from neuron_llm.report.advice.prefill_score import score_prefill
from neuron_llm.report.workload.length_histogram import LengthHistogram

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)
LIMITS = st.builds(
    BucketLimits, st.integers(1, 320), max_graphs=st.integers(1, 12), granularity=st.integers(1, 70)
)


def padding_of(lengths: list[int], buckets: tuple[int, ...]) -> int:
    """Count the padding the slow way: chunk by chunk, bucket by bucket."""
    padding = 0
    for length in lengths:
        left = length
        while left:
            chunk = min(left, buckets[-1])
            padding += next(size for size in buckets if size >= chunk) - chunk
            left -= chunk
    return padding


def all_lists(limits: BucketLimits) -> list[tuple[int, ...]]:
    largest = limits.max_chunk_tokens
    sizes = range(limits.granularity, largest, limits.granularity)
    return [
        (*smaller, largest)
        for num_smaller in range(limits.max_graphs)
        for smaller in combinations(sizes, num_smaller)
    ]


def test_the_optimum_equals_the_best_of_all_lists_on_500_random_workloads() -> None:
    rng = random.Random(0)
    for _ in range(500):
        lengths = [rng.randint(1, 18) for _ in range(rng.randint(0, 9))]
        limits = BucketLimits(rng.randint(1, 14), rng.randint(1, 4), rng.choice([1, 1, 2, 3, 5]))
        tried = {buckets: padding_of(lengths, buckets) for buckets in all_lists(limits)}
        least = min(tried.values())
        found = optimal_buckets(LengthHistogram.of(lengths), limits)
        assert tried[found] == least, (lengths, limits)
        assert len(found) == min(len(b) for b, padding in tried.items() if padding == least)


def test_example_of_the_docstring() -> None:
    assert optimal_buckets(LengthHistogram.of([3, 6, 6]), BucketLimits(8, 2)) == (6, 8)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (BucketLimits(8, 1), (8,)),
        (BucketLimits(6, 2), (3, 6)),
        (BucketLimits(6, 9), (3, 5, 6)),
        (BucketLimits(8, 9, granularity=4), (4, 8)),
        (BucketLimits(7, 9, granularity=4), (4, 7)),
        (BucketLimits(7, 9, granularity=8), (7,)),
    ],
)
def test_lists_keep_to_their_limits(limits: BucketLimits, expected: tuple[int, ...]) -> None:
    assert optimal_buckets(LengthHistogram.of([3, 5, 6]), limits) == expected


def test_workload_without_prompts_needs_the_largest_bucket_alone() -> None:
    assert optimal_bucket_lists(LengthHistogram.of([]), BucketLimits(512, 8)) == [(512,)]


def test_largest_bucket_is_there_even_if_no_chunk_needs_it() -> None:
    lists = optimal_bucket_lists(LengthHistogram.of([5, 5, 5]), BucketLimits(512, 8))
    assert lists == [(512,), (5, 512)]


def test_long_prompts_are_fitted_by_their_chunks() -> None:
    chunks = LengthHistogram.of([16, 16, 5])
    limits = BucketLimits(16, 2)
    whole = LengthHistogram.of([37])
    assert optimal_buckets(whole, limits) == optimal_buckets(chunks, limits) == (5, 16)


def test_lengths_and_counts_far_beyond_64_bits_are_exact() -> None:
    many = 10**30
    lengths = LengthHistogram({2**31 - 5: many, 2**31 - 4: many + 1, 2**31 - 1: 1})
    assert optimal_buckets(lengths, BucketLimits(2**31 - 1, 2)) == (2**31 - 4, 2**31 - 1)


@given(LENGTHS, LIMITS)
def test_every_list_ends_in_the_largest_chunk_and_is_made_of_multiples(
    lengths: list[int], limits: BucketLimits
) -> None:
    for index, buckets in enumerate(optimal_bucket_lists(LengthHistogram.of(lengths), limits)):
        assert len(buckets) == index + 1 <= limits.max_graphs
        assert buckets[-1] == limits.max_chunk_tokens
        assert all(size % limits.granularity == 0 for size in buckets[:-1])
        assert all(smaller < larger for smaller, larger in pairwise(buckets))


@given(LENGTHS, LIMITS)
def test_each_graph_saves_something_and_at_most_as_much_as_the_one_before(
    lengths: list[int], limits: BucketLimits
) -> None:
    histogram = LengthHistogram.of(lengths)
    lists = optimal_bucket_lists(histogram, limits)
    padding = [score_prefill(histogram, buckets).num_padded_tokens for buckets in lists]
    savings = [fewer - more for fewer, more in pairwise(padding)]
    assert all(saving > 0 for saving in savings)
    assert savings == sorted(savings, reverse=True)


@given(LENGTHS, LIMITS)
def test_where_the_lists_end_early_no_further_graph_would_save_anything(
    lengths: list[int], limits: BucketLimits
) -> None:
    histogram = LengthHistogram.of(lengths)
    lists = optimal_bucket_lists(histogram, limits)
    if len(lists) < limits.max_graphs:
        largest, step = limits.max_chunk_tokens, limits.granularity
        everything = (*range(step, largest, step), largest)
        least = score_prefill(histogram, everything).num_padded_tokens
        assert score_prefill(histogram, lists[-1]).num_padded_tokens == least


@given(LENGTHS, LIMITS, st.data())
def test_no_other_list_of_as_many_graphs_leaves_less_padding(
    lengths: list[int], limits: BucketLimits, data: st.DataObject
) -> None:
    step = limits.granularity
    sizes = list(range(step, limits.max_chunk_tokens, step))
    smaller = data.draw(
        st.sets(st.sampled_from(sizes), max_size=limits.max_graphs - 1)
        if sizes
        else st.just(set[int]())
    )
    other = (*sorted(smaller), limits.max_chunk_tokens)
    histogram = LengthHistogram.of(lengths)
    best = score_prefill(histogram, optimal_buckets(histogram, limits))
    assert best.num_padded_tokens <= score_prefill(histogram, other).num_padded_tokens
