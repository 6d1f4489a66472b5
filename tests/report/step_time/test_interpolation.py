"""Values between and beyond known ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.step_time.step_times import interpolate


@pytest.mark.parametrize(
    ("size", "value"), [(100, 10), (150, 12), (200, 14), (50, 8), (300, 18), (1, 6.04)]
)
def test_it_lies_on_the_line_through_the_nearest_two(size: int, value: float) -> None:
    assert interpolate({200: 14.0, 100: 10.0}, size) == pytest.approx(value)


def test_each_stretch_has_its_own_line() -> None:
    known = {1: 1.0, 2: 2.0, 4: 8.0}
    assert [interpolate(known, size) for size in (1, 2, 3, 4, 5)] == [1, 2, 5, 8, 11]


@pytest.mark.parametrize(("size", "value"), [(1, 6), (8, 6), (16, 12)])
def test_beside_a_single_one_it_is_the_same_below_and_in_proportion_above(
    size: int, value: float
) -> None:
    assert interpolate({8: 6.0}, size) == value


def test_a_line_that_would_begin_below_zero_is_left_for_one_in_proportion() -> None:
    assert interpolate({10: 10.0, 20: 30.0}, 5) == 5
    assert interpolate({10: 10.0, 20: 30.0}, 1) == 1


def test_a_falling_line_is_not_followed_beyond_its_ends() -> None:
    known = {10: 12.0, 20: 8.0}
    assert interpolate(known, 40) == 8
    assert interpolate(known, 5) == 12
    assert interpolate(known, 15) == 10


@given(
    st.dictionaries(st.integers(1, 100), st.floats(0.001, 100), min_size=1, max_size=6),
    st.integers(1, 300),
)
def test_it_is_positive_and_keeps_what_is_known(known: dict[int, float], size: int) -> None:
    assert interpolate(known, size) > 0
    assert all(interpolate(known, each) == value for each, value in known.items())
