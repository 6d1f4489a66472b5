"""Comparisons of bucket lists: a saving is only what leaves less padding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.advice.bucket_comparison import (
    BucketComparison,
    Verdict,
    compare_at_equal_count,
)
from neuron_llm.report.advice.prefill_score import score_prefill
from neuron_llm.report.workload.length_histogram import LengthHistogram

LENGTHS = LengthHistogram.of([5, 12, 20, 33])


def compare(reference: list[int], candidate: list[int]) -> BucketComparison:
    return BucketComparison(score_prefill(LENGTHS, reference), score_prefill(LENGTHS, candidate))


def test_less_padding_is_a_saving() -> None:
    comparison = compare([8, 16, 32, 64], [5, 12, 20, 33])
    assert comparison.verdict is Verdict.LESS_PADDING
    assert comparison.num_padded_tokens_more == -50
    assert comparison.num_graphs_more == 0
    assert comparison.saved_share == 50 / 120
    text = "0.0% padding with 4 graphs instead of 41.7% with 4"
    assert comparison.description == text


def test_fewer_graphs_with_more_padding_are_no_saving() -> None:
    comparison = compare([8, 16, 24, 40], [40])
    assert comparison.verdict is Verdict.MORE_PADDING
    assert comparison.num_graphs_more == -3
    assert comparison.num_padded_tokens_more == 90 - 18
    assert comparison.saved_share is None
    text = "56.2% padding with 1 graph instead of 20.5% with 4: more padding"
    assert comparison.description == text


def test_as_much_padding_is_no_saving() -> None:
    comparison = compare([5, 12, 20, 33], [5, 12, 20, 33, 64])
    assert comparison.verdict is Verdict.SAME_PADDING
    assert comparison.num_graphs_more == 1
    assert comparison.saved_share is None


def test_lists_with_other_chunk_sizes_are_compared_by_the_chunks_they_make() -> None:
    # 33 tokens are 16 and 16 and 1 under the second list.
    comparison = compare([64], [16])
    assert comparison.num_padded_tokens_more == (11 + 4 + 12 + 15) - (59 + 52 + 44 + 31)
    text = "37.5% padding with 1 graph instead of 72.7% with 1, in 7 steps instead of 4"
    assert comparison.description == text


def test_best_list_of_as_many_graphs_ends_in_the_same_bucket() -> None:
    comparison = compare_at_equal_count(LENGTHS, (8, 16, 32, 64), 1)
    assert comparison.candidate.buckets == (12, 20, 33, 64)
    assert comparison.verdict is Verdict.LESS_PADDING


def test_best_list_of_multiples_can_be_worse_than_a_list_of_any_sizes() -> None:
    comparison = compare_at_equal_count(LENGTHS, (5, 12, 20, 33), 16)
    assert comparison.candidate.buckets == (16, 32, 33)
    assert comparison.verdict is Verdict.MORE_PADDING
    assert comparison.saved_share is None


def test_cached_tokens_are_carried_into_both_scores() -> None:
    comparison = compare_at_equal_count(LENGTHS, (8, 64), 1, {20: 48})
    assert comparison.reference.total.num_cached_tokens == 48
    assert comparison.candidate.total.num_cached_tokens == 48


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=40),
    st.lists(st.integers(1, 220), min_size=1, max_size=6, unique=True).map(sorted),
)
def test_without_granularity_no_list_beats_the_best_of_as_many_graphs(
    lengths: list[int], reference: list[int]
) -> None:
    comparison = compare_at_equal_count(LengthHistogram.of(lengths), tuple(reference), 1)
    assert comparison.verdict is not Verdict.MORE_PADDING
    assert comparison.num_graphs_more <= 0


@pytest.mark.parametrize(
    ("candidate", "verdict", "saved"),
    [([5, 12, 20, 33], "less_padding", 50 / 120), ([64], "more_padding", None)],
)
def test_json_says_the_verdict(candidate: list[int], verdict: str, saved: float | None) -> None:
    comparison = compare([8, 16, 32, 64], candidate)
    assert comparison.to_json() == {
        "verdict": verdict,
        "num_graphs_more": len(candidate) - 4,
        "num_padded_tokens_more": comparison.num_padded_tokens_more,
        "saved_share": saved,
        "reference": comparison.reference.to_json(),
        "candidate": comparison.candidate.to_json(),
    }
