"""The optimiser on traces of real traffic: against a plain quadratic program, and in figures."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from real_traces import AZURE, MOONCAKE, NAMES, OFFLINE_F, needs_traces, prompt_lengths, real_trace

from neuron_llm.report.advice.bucket_comparison import BucketComparison, Verdict
from neuron_llm.report.advice.bucket_optimizer import (
    BucketLimits,
    optimal_bucket_lists,
    optimal_buckets,
)
from neuron_llm.report.advice.held_out import score_held_out
from neuron_llm.report.advice.prefill_score import score_prefill
from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.report.workload.prefix_hits import computed_after_hits
from neuron_llm.scheduler.buckets import get_default_num_batched_tokens_buckets

pytestmark = needs_traces

MAX_GRAPHS = 10


def round_up(length: int, granularity: int) -> int:
    return -(-length // granularity) * granularity


def quadratic_optima(lengths: LengthHistogram, limits: BucketLimits) -> list[int]:
    """Return the least padding for 1, 2, ... buckets, trying every bucket before every other."""
    largest, granularity = limits.max_chunk_tokens, limits.granularity
    chunks = Counter[int]()
    for length, count in lengths.counts.items():
        for start in range(0, length, largest):
            chunks[min(length - start, largest)] += count
    tops = {min(round_up(chunk, granularity), largest) for chunk in chunks} | {largest}
    edges = np.array(sorted(tops))
    sizes = np.array(sorted(chunks))
    counts = np.array([chunks[size] for size in sizes])
    up_to = np.searchsorted(sizes, edges, side="right")
    num_up_to = np.concatenate([[0], np.cumsum(counts)])[up_to]
    tokens_up_to = np.concatenate([[0], np.cumsum(counts * sizes)])[up_to]
    least = edges * num_up_to - tokens_up_to
    optima = [int(least[-1])]
    for _ in range(1, limits.max_graphs):
        following = least.copy()
        for j in range(1, len(edges)):
            between = edges[j] * (num_up_to[j] - num_up_to[:j]) - (
                tokens_up_to[j] - tokens_up_to[:j]
            )
            following[j] = min(following[j], (least[:j] + between).min())
        least = following
        optima.append(int(least[-1]))
    return optima


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("granularity", [1, 64])
@pytest.mark.parametrize("max_chunk_tokens", [None, 2048])
def test_optima_equal_those_of_a_quadratic_program(
    name: str, granularity: int, max_chunk_tokens: int | None
) -> None:
    lengths = prompt_lengths(name)
    largest = max_chunk_tokens or round_up(lengths.longest, granularity)
    limits = BucketLimits(largest, MAX_GRAPHS, granularity)
    found = [
        score_prefill(lengths, buckets).num_padded_tokens
        for buckets in optimal_bucket_lists(lengths, limits)
    ]
    found += [found[-1]] * (MAX_GRAPHS - len(found))
    assert found == quadratic_optima(lengths, limits)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_read(name: str) -> None:
    trace = real_trace(name)
    assert trace.bad_rows == ()
    rows = {AZURE: 19_366, MOONCAKE: 6_015, "servegen_m_small_1h_sampled.csv": 29_807}
    rows |= {"servegen_offline_a_excerpt.jsonl": 93, "servegen_offline_d_excerpt.csv": 165}
    assert len(trace.requests) == {**rows, OFFLINE_F: 149}[name]


@pytest.mark.parametrize(
    ("name", "num_graphs", "padding"),
    [(AZURE, 8, "30.4%"), (MOONCAKE, 11, "30.6%"), (OFFLINE_F, 6, "42.2%")],
)
def test_padding_of_powers_of_two(name: str, num_graphs: int, padding: str) -> None:
    buckets = [128 * 2**index for index in range(num_graphs)]
    assert f"{score_prefill(prompt_lengths(name), buckets).padding_ratio:.1%}" == padding
    assert buckets[-2] < prompt_lengths(name).longest <= buckets[-1]


@pytest.mark.parametrize(("name", "padding"), [(MOONCAKE, "29.9%"), (OFFLINE_F, "40.6%")])
def test_padding_of_the_default_list(name: str, padding: str) -> None:
    lengths = prompt_lengths(name)
    buckets = get_default_num_batched_tokens_buckets(lengths.longest)
    assert f"{score_prefill(lengths, buckets).padding_ratio:.1%}" == padding


@pytest.mark.parametrize(
    ("name", "num_graphs", "padding", "padding_of_multiples"),
    [
        (AZURE, 4, "27.3%", "27.8%"),
        (AZURE, 6, "17.3%", "17.7%"),
        (AZURE, 8, "12.3%", "12.7%"),
        (MOONCAKE, 4, "41.0%", "41.1%"),
        (MOONCAKE, 8, "22.3%", "22.4%"),
        (OFFLINE_F, 6, "1.9%", "3.0%"),
    ],
)
def test_padding_of_the_optimal_list(
    name: str, num_graphs: int, padding: str, padding_of_multiples: str
) -> None:
    lengths = prompt_lengths(name)
    for granularity, expected in ((1, padding), (64, padding_of_multiples)):
        largest = round_up(lengths.longest, granularity)
        buckets = optimal_buckets(lengths, BucketLimits(largest, num_graphs, granularity))
        assert len(buckets) == num_graphs
        assert f"{score_prefill(lengths, buckets).padding_ratio:.1%}" == expected


def test_four_graphs_for_long_conversations_are_no_saving() -> None:
    lengths = prompt_lengths(MOONCAKE)
    default = get_default_num_batched_tokens_buckets(lengths.longest)
    comparison = BucketComparison(
        score_prefill(lengths, default),
        score_prefill(lengths, optimal_buckets(lengths, BucketLimits(lengths.longest, 4))),
    )
    assert comparison.verdict is Verdict.MORE_PADDING
    assert comparison.saved_share is None
    text = "41.0% padding with 4 graphs instead of 29.9% with 11: more padding"
    assert comparison.description == text


def test_buckets_of_the_first_half_still_beat_the_default_on_the_second() -> None:
    lengths = [request.prompt_tokens for request in real_trace(MOONCAKE).requests]
    scores = score_held_out(lengths, BucketLimits(max(lengths), 8))
    assert scores is not None
    found = (scores.fitted, scores.held_out, scores.held_out_best, scores.held_out_default)
    assert [f"{score.padding_ratio:.1%}" for score in found] == ["21.6%", "23.3%", "22.7%", "29.3%"]


def test_shared_prefixes_leave_two_thirds_of_long_conversations_to_compute() -> None:
    trace = real_trace(MOONCAKE)
    work = computed_after_hits(trace, block_size=512)
    total = prompt_lengths(MOONCAKE).num_tokens
    assert sum(work.num_computed_tokens) + sum(work.num_cached_tokens) == total
    assert f"{sum(work.num_cached_tokens) / total:.1%}" == "35.2%"
    assert work.lengths.num_tokens == sum(work.num_computed_tokens)
