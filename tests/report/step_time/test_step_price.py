"""Prices of a step, assumed or fitted to measured times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.step_time.step_price import DEFAULT_STEP_PRICE, StepPrice, fit_step_price


def test_price_is_paid_by_step_and_by_token() -> None:
    assert StepPrice(step=10, token=0.5, unit="ms").of(3, 100) == 80


def test_default_price_is_stated() -> None:
    expected = {"step": 230, "token": 1, "unit": "tokens"}
    assert DEFAULT_STEP_PRICE.to_json() == expected


def test_two_sizes_give_the_line_through_them() -> None:
    price = fit_step_price({32: 10.0, 64: 14.0})
    assert price == StepPrice(step=6.0, token=0.125, unit="ms")


def test_line_never_begins_below_zero() -> None:
    price = fit_step_price({100: 1.0, 200: 4.0})
    assert price is not None
    assert price.step == 0
    assert price.token == pytest.approx((100 * 1 + 200 * 4) / (100**2 + 200**2))


@pytest.mark.parametrize("mean_ms", [{}, {128: 5.0}, {128: 5.0, 256: 5.0}, {128: 5.0, 256: 4.0}])
def test_times_that_tell_no_price_give_none(mean_ms: dict[int, float]) -> None:
    assert fit_step_price(mean_ms) is None


@given(
    st.floats(0, 100), st.floats(0.001, 10), st.sets(st.integers(1, 4096), min_size=2, max_size=8)
)
def test_times_on_a_line_give_that_line(step: float, token: float, sizes: set[int]) -> None:
    price = fit_step_price({size: step + token * size for size in sizes})
    assert price is not None
    assert price.token == pytest.approx(token, rel=1e-3, abs=1e-6)
    assert price.step == pytest.approx(step, rel=1e-3, abs=1e-3)
