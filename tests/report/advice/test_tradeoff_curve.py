"""The trade-off curve and its knee."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.advice.bucket_optimizer import BucketLimits, optimal_buckets
from neuron_llm.report.advice.tradeoff_curve import MIN_SAVING, TradeoffCurve, tradeoff_curve
from neuron_llm.report.workload.length_histogram import LengthHistogram

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def curve_of(lengths: list[int], max_graphs: int) -> TradeoffCurve:
    histogram = LengthHistogram.of(lengths)
    return tradeoff_curve(histogram, BucketLimits(histogram.longest, max_graphs))


def test_points_are_the_optimal_lists_of_one_graph_more_each() -> None:
    lengths = LengthHistogram.of([10, 20, 40, 80])
    curve = tradeoff_curve(lengths, BucketLimits(80, 3))
    assert [point.num_graphs for point in curve.points] == [1, 2, 3]
    assert [point.buckets[-1] for point in curve.points] == [80, 80, 80]
    assert curve.points[2].buckets == optimal_buckets(lengths, BucketLimits(80, 3))
    assert [point.num_padded_tokens for point in curve.points] == [170, 50, 10]


def test_knee_is_before_the_first_graph_that_saves_less_than_one_token_in_a_hundred() -> None:
    # 1000 real tokens; graphs that end in 11 and in 10 save 870, and then 10 tokens of padding.
    ten_saved = [10] * 10 + [11] * 70 + [130]
    assert sum(ten_saved) == 1000
    assert [p.num_padded_tokens for p in curve_of(ten_saved, 3).points] == [9530, 10, 0]
    assert curve_of(ten_saved, 3).knee.buckets == (10, 11, 130)
    nine_saved = [10] * 9 + [11] * 70 + [140]
    assert sum(nine_saved) == 1000
    assert [p.num_padded_tokens for p in curve_of(nine_saved, 3).points][1:] == [9, 0]
    assert curve_of(nine_saved, 3).knee.buckets == (11, 140)


def test_curve_of_one_length_is_its_knee() -> None:
    curve = curve_of([7, 7, 7], 8)
    assert len(curve.points) == 1
    assert curve.knee.buckets == (7,)


def test_curve_of_no_prompt_is_a_point() -> None:
    curve = tradeoff_curve(LengthHistogram.of([]), BucketLimits(512, 8))
    assert curve.knee.buckets == (512,)


def test_at_most_so_many_graphs_is_the_last_point_that_has_no_more() -> None:
    curve = curve_of([10, 20, 40], 8)
    assert [curve.at_most(num).num_graphs for num in (1, 2, 3, 4, 50)] == [1, 2, 3, 3, 3]


@given(LENGTHS, st.integers(1, 12))
def test_every_graph_up_to_the_knee_is_worth_it_and_none_behind(
    lengths: list[int], max_graphs: int
) -> None:
    curve = curve_of(lengths, max_graphs)
    padding = [point.num_padded_tokens for point in curve.points]
    worth_it = [fewer - more >= MIN_SAVING * sum(lengths) for fewer, more in pairwise(padding)]
    num_before = curve.knee.num_graphs - 1
    assert worth_it == [True] * num_before + [False] * (len(worth_it) - num_before)


def test_json_names_the_knee_by_its_number_of_graphs() -> None:
    curve = curve_of([10, 20, 40], 2)
    assert curve.to_json() == {
        "points": [point.to_json() for point in curve.points],
        "knee_num_graphs": 2,
        "min_saving": 0.01,
    }
