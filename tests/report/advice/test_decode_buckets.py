"""Recommended decode graphs: worked examples, and every list that could have been."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.errors import NoBucketError
from neuron_llm.report.advice.decode_buckets import (
    DecodeBucketLimits,
    DecodeRecommendation,
    recommend_decode_buckets,
)
from neuron_llm.report.advice.decode_choice import score_decode_buckets
from neuron_llm.report.simulate.decode_occupancy import DecodeOccupancy
from neuron_llm.report.step_time.step_times import StepTime, StepTimeSource
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket


class CellTimes:
    """A decode takes 1 s, and what is paid for each token of context in each row."""

    def __init__(self, per_token: float) -> None:
        self.per_token = per_token

    def step_time(self, bucket: Bucket) -> StepTime:
        assert isinstance(bucket, DecodeBucket)
        cells = bucket.batch_size * bucket.max_context_tokens
        return StepTime(1 + cells * self.per_token, StepTimeSource.ROOFLINE)


def occupancy_of(*steps: tuple[int, int, int]) -> DecodeOccupancy:
    occupancy = DecodeOccupancy()
    for num_seqs, longest, num_steps in steps:
        occupancy.add(num_seqs, longest, num_steps)
    return occupancy


def recommend(
    occupancy: DecodeOccupancy, *, max_graphs: int, per_token: float = 1 / 1024
) -> DecodeRecommendation:
    limits = DecodeBucketLimits(max_num_seqs=8, max_model_len=1000, max_graphs=max_graphs)
    return recommend_decode_buckets(occupancy, limits, CellTimes(per_token))


def test_a_single_graph_holds_everything() -> None:
    result = recommend(occupancy_of((3, 100, 10)), max_graphs=1)
    assert result.best.num_seqs_buckets == (8,)
    assert result.best.decode_context_length_buckets == ()
    assert result.best.seconds == 10 * (1 + 8 * 1000 / 1024)
    assert result.best.num_row_padded_tokens == 50


def test_graphs_go_where_the_steps_are() -> None:
    occupancy = occupancy_of((3, 100, 90), (8, 100, 10))
    rows = recommend(occupancy, max_graphs=2).at_most(2)
    # All are short: a context below 1000 saves more than rows do.
    assert (rows.num_seqs_buckets, rows.decode_context_length_buckets) == ((8,), (128,))
    both = recommend(occupancy, max_graphs=4).best
    assert (both.num_seqs_buckets, both.decode_context_length_buckets) == ((3, 8), (128,))
    assert both.seconds == 90 * (1 + 3 * 128 / 1024) + 10 * (1 + 8 * 128 / 1024)
    assert both.num_row_padded_tokens == 0


def test_rows_come_first_where_contexts_are_long() -> None:
    best = recommend(occupancy_of((3, 999, 90), (8, 999, 10)), max_graphs=2).best
    assert (best.num_seqs_buckets, best.decode_context_length_buckets) == ((3, 8), ())


def test_contexts_that_do_not_pay_are_not_recommended() -> None:
    occupancy = occupancy_of((3, 100, 90), (8, 600, 10))
    result = recommend(occupancy, max_graphs=9, per_token=0.0)
    assert result.best.num_graphs == 1
    assert [point.num_graphs for point in result.points] == [1]


def test_the_default_is_beside_the_best_of_as_many_graphs() -> None:
    occupancy = occupancy_of((3, 100, 90), (8, 100, 10))
    result = recommend(occupancy, max_graphs=1)
    assert result.default.num_seqs_buckets == (1, 2, 4, 8)
    assert result.default.seconds == 90 * (1 + 4 * 1000 / 1024) + 10 * (1 + 8 * 1000 / 1024)
    assert result.best.num_graphs == 1
    assert result.at_equal_count.num_graphs == 4
    assert result.at_equal_count.seconds < result.default.seconds


def test_the_knee_leaves_out_graphs_that_save_next_to_nothing() -> None:
    occupancy = occupancy_of((8, 100, 10_000), (7, 100, 1))
    result = recommend(occupancy, max_graphs=6)
    assert result.best.num_seqs_buckets == (7, 8)
    assert result.knee.num_seqs_buckets == (8,)
    assert result.knee.decode_context_length_buckets == (128,)


def test_without_decodes_one_graph_is_enough() -> None:
    result = recommend(DecodeOccupancy(), max_graphs=6)
    assert result.best.num_seqs_buckets == (8,)
    assert (result.best.seconds, result.best.mean_step_ms) == (0, None)


def test_the_json_has_every_point() -> None:
    report = recommend(occupancy_of((3, 100, 90)), max_graphs=4).to_json()
    assert report["is_exact"] is True
    assert report["best"] == report["points"][-1]
    assert report["best"]["num_seqs_buckets"] == [3, 8]
    assert report["best"]["decode_context_length_buckets"] == [128]
    assert report["best"]["mean_step_ms"] == 1375.0
    assert report["default"]["num_graphs"] == 4


def test_a_list_that_holds_too_few_rows_is_an_error() -> None:
    with pytest.raises(NoBucketError):
        score_decode_buckets(
            occupancy_of((3, 100, 1)), [1, 2], [], max_model_len=1000, step_times=CellTimes(0.1)
        )


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(2, 700), st.integers(1, 50)),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 8),
    st.integers(0, 4),
)
def test_no_lists_take_less_time(
    steps: list[tuple[int, int, int]], max_graphs: int, price: int
) -> None:
    occupancy, times = occupancy_of(*steps), CellTimes(price / 1024)
    limits = DecodeBucketLimits(max_num_seqs=5, max_model_len=700, max_graphs=max_graphs)
    result = recommend_decode_buckets(occupancy, limits, times)
    assert result.best.num_graphs <= max_graphs
    assert all(c % 128 == 0 and c < 700 for c in result.best.decode_context_length_buckets)
    least: dict[int, float] = {}
    for num_rows in range(1, 6):
        for num_contexts in range(max_graphs // num_rows):
            num_graphs = num_rows * (num_contexts + 1)
            for rows in combinations(range(1, 5), num_rows - 1):
                for contexts in combinations(range(128, 700, 128), num_contexts):
                    choice = score_decode_buckets(
                        occupancy, [*rows, 5], contexts, max_model_len=700, step_times=times
                    )
                    known = least.get(num_graphs, choice.seconds)
                    least[num_graphs] = min(known, choice.seconds)
    assert result.best.seconds == pytest.approx(min(least.values()), rel=1e-9)
    for point in result.points:
        if point.num_graphs <= max_graphs:
            assert point.seconds == pytest.approx(least[point.num_graphs], rel=1e-9)
