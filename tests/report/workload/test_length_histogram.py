"""Histograms of lengths: counts, percentiles, chunks and bins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.workload.length_histogram import LengthBin, LengthHistogram

LENGTHS = st.lists(st.integers(1, 60), max_size=40)


def test_counts_ascend_and_sums_count_every_length_as_often_as_it_occurs() -> None:
    lengths = LengthHistogram.of([5, 3, 5, 9])
    assert list(lengths.counts.items()) == [(3, 1), (5, 2), (9, 1)]
    assert (lengths.num_lengths, lengths.num_tokens, lengths.longest) == (4, 22, 9)


def test_nothing_has_a_histogram_too() -> None:
    empty = LengthHistogram.of([])
    assert (empty.num_lengths, empty.num_tokens, empty.longest) == (0, 0, 0)
    assert empty.percentile(50) == 0
    assert empty.num_above(0) == 0
    assert empty.chunked(4).counts == {}
    assert empty.bins([8]) == [LengthBin(1, 8, 0)]


def test_percentile_is_a_length_that_occurs() -> None:
    lengths = LengthHistogram.of([1, 2, 3, 4])
    percents = (0, 25, 50, 51, 75, 99, 100)
    assert [lengths.percentile(percent) for percent in percents] == [1, 1, 2, 3, 3, 4, 4]


@given(LENGTHS.filter(bool), st.integers(1, 100))
def test_percentile_is_the_least_length_that_enough_do_not_exceed(
    lengths: list[int], percent: int
) -> None:
    found = LengthHistogram.of(lengths).percentile(percent)
    enough = percent * len(lengths)
    assert sum(100 for length in lengths if length <= found) >= enough
    assert found in lengths
    assert sum(100 for length in lengths if length < found) < enough


@given(LENGTHS, st.integers(0, 61))
def test_num_above_counts_longer_ones(lengths: list[int], limit: int) -> None:
    above = LengthHistogram.of(lengths).num_above(limit)
    assert above == sum(length > limit for length in lengths)


def test_long_prompt_becomes_full_chunks_and_a_rest() -> None:
    chunks = LengthHistogram.of([1200, 1024, 512, 7, 7]).chunked(512)
    assert chunks.counts == {7: 2, 176: 1, 512: 5}


@given(LENGTHS, st.integers(1, 61))
def test_chunks_have_the_tokens_of_the_prompts(lengths: list[int], max_chunk: int) -> None:
    whole = LengthHistogram.of(lengths)
    chunks = whole.chunked(max_chunk)
    assert chunks.num_tokens == whole.num_tokens
    assert chunks.longest <= max_chunk
    assert chunks.num_lengths == sum(-(-length // max_chunk) for length in lengths)
    assert chunks.chunked(max_chunk) is chunks


def test_bins_lie_between_the_edges_and_one_holds_what_is_longer() -> None:
    lengths = LengthHistogram.of([1, 8, 9, 16, 17, 40])
    assert lengths.bins([8, 16]) == [
        LengthBin(1, 8, 2),
        LengthBin(9, 16, 2),
        LengthBin(17, 40, 2),
    ]
    assert lengths.bins([64]) == [LengthBin(1, 64, 6)]
    assert lengths.bins([]) == [LengthBin(1, 40, 6)]


@given(LENGTHS, st.lists(st.integers(1, 70), min_size=1, max_size=6, unique=True).map(sorted))
def test_every_length_is_in_exactly_one_bin(lengths: list[int], edges: list[int]) -> None:
    bins = LengthHistogram.of(lengths).bins(edges)
    for each in bins:
        inside = [n for n in lengths if each.min_tokens <= n <= each.max_tokens]
        assert each.num_lengths == len(inside)
    assert sum(each.num_lengths for each in bins) == len(lengths)


def test_json_has_sums_and_percentiles() -> None:
    lengths = LengthHistogram.of([*range(1, 100), 500])
    assert lengths.to_json() == {
        "num_lengths": 100,
        "num_tokens": 5450,
        "p50_tokens": 50,
        "p90_tokens": 90,
        "p99_tokens": 99,
        "max_tokens": 500,
    }
