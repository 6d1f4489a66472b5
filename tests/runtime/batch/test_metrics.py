from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.runtime.batch.distribution import Distribution
from neuron_llm.runtime.batch.metrics import LatencyTargets, RequestLatency, RunMetrics
from neuron_llm.runtime.engine.outputs import RequestTimes

THREE_TOKENS = RequestTimes(100.0, (100.5, 100.75, 101.5), first_scheduled=100.25)
ONE_TOKEN = RequestTimes(100.0, (102.0,), first_scheduled=101.75)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80),
    percents=st.lists(st.sampled_from([0, 1, 25, 50, 75, 90, 99, 99.9, 100]), max_size=4),
)
def test_percentiles_are_those_of_numpy(values: list[float], percents: list[float]) -> None:
    ours = Distribution(values).percentiles(percents)
    assert ours == pytest.approx([np.percentile(values, p) for p in percents], abs=1e-6)


def test_percentiles_of_an_even_count_lie_between_two_values() -> None:
    assert Distribution([4, 1, 3, 2]).percentiles([0, 50, 100]) == [1, 2.5, 4]
    assert Distribution([7]).percentiles([1, 99]) == [7, 7]


def test_a_distribution_without_values_has_neither_mean_nor_percentiles() -> None:
    assert Distribution().mean is None and Distribution().maximum is None
    assert Distribution().percentiles([50, 99]) == [None, None]


def test_a_long_run_keeps_a_fair_sample_and_an_exact_mean() -> None:
    distribution = Distribution(range(100_000), max_samples=2000)
    assert distribution.num_values == 100_000
    assert distribution.mean == 49_999.5
    assert distribution.maximum == 99_999
    p10, p50, p90 = distribution.percentiles([10, 50, 90])
    assert p10 == pytest.approx(10_000, abs=3000)
    assert p50 == pytest.approx(50_000, abs=5000)
    assert p90 == pytest.approx(90_000, abs=3000)


def test_latencies_follow_their_definitions() -> None:
    latency = RequestLatency.of(THREE_TOKENS)
    assert latency.queue_ms == 250
    assert latency.ttft_ms == 500
    assert latency.e2el_ms == 1500
    assert latency.tpot_ms == 500  # (1500 - 500) / 2
    assert latency.itls_ms == (250, 750)


def test_one_token_has_no_time_per_later_token() -> None:
    latency = RequestLatency.of(ONE_TOKEN)
    assert (latency.ttft_ms, latency.e2el_ms) == (2000, 2000)
    assert (latency.tpot_ms, latency.itls_ms) == (None, ())


def test_a_run_adds_up_its_requests_with_units_in_the_keys() -> None:
    metrics = RunMetrics()
    metrics.add(THREE_TOKENS, num_prompt_tokens=10, num_cached_tokens=4)
    metrics.add(ONE_TOKEN, num_prompt_tokens=6)
    metrics.add_failure()
    report = metrics.to_json(duration_s=4.0)
    assert report == {
        "duration_s": 4.0,
        "num_completed": 2,
        "num_failed": 1,
        "num_prompt_tokens": 16,
        "num_cached_tokens": 4,
        "num_output_tokens": 4,
        "requests_per_s": 0.5,
        "output_tokens_per_s": 1.0,
        "total_tokens_per_s": 5.0,
        "queue_ms": {
            "mean": 1000,
            "p50": 1000,
            "p90": 1600,
            "p99": pytest.approx(1735),
            "max": 1750,
        },
        "ttft_ms": {
            "mean": 1250,
            "p50": 1250,
            "p90": 1850,
            "p99": pytest.approx(1985),
            "max": 2000,
        },
        "tpot_ms": {"mean": 500, "p50": 500, "p90": 500, "p99": 500, "max": 500},
        "itl_ms": {"mean": 500, "p50": 500, "p90": 700, "p99": pytest.approx(745), "max": 750},
        "e2el_ms": {
            "mean": 1750,
            "p50": 1750,
            "p90": 1950,
            "p99": pytest.approx(1995),
            "max": 2000,
        },
    }


def test_a_start_that_was_not_noted_is_no_time_in_the_queue() -> None:
    metrics = RunMetrics()
    metrics.add(RequestTimes(0.0, (1.0,)), num_prompt_tokens=1)
    assert metrics.to_json(duration_s=1.0)["queue_ms"]["mean"] is None
    metrics.add(RequestTimes(0.0, (1.0,), 0.5), RequestTimes(0.0, (2.0,), 0.5), num_prompt_tokens=1)
    assert metrics.to_json(duration_s=1.0)["queue_ms"]["mean"] == 500


def test_itl_is_a_distribution_over_gaps_and_tpot_over_requests() -> None:
    metrics = RunMetrics()
    metrics.add(RequestTimes(0.0, (1.0, 2.0)), num_prompt_tokens=1)
    metrics.add(RequestTimes(0.0, (1.0, 4.0, 7.0, 10.0)), num_prompt_tokens=1)
    report = metrics.to_json(duration_s=1.0)
    assert report["tpot_ms"]["mean"] == 2000  # of 1000 and 3000
    assert report["itl_ms"]["mean"] == 2500  # of 1000, 3000, 3000, 3000


def test_a_run_without_requests_is_valid_json_with_nulls() -> None:
    report = json.loads(json.dumps(RunMetrics().to_json(duration_s=0.0), allow_nan=False))
    assert report["requests_per_s"] is None
    assert report["itl_ms"] == dict.fromkeys(["mean", "p50", "p90", "p99", "max"])
    assert "goodput_requests_per_s" not in report


@pytest.mark.parametrize(
    ("targets", "num_good"),
    [
        (LatencyTargets(), 2),
        (LatencyTargets(ttft_ms=500), 1),
        (LatencyTargets(ttft_ms=499), 0),
        (LatencyTargets(tpot_ms=499), 1),  # the one-token request has none
        (LatencyTargets(e2el_ms=1999), 1),
        (LatencyTargets(ttft_ms=500, e2el_ms=1400), 0),
    ],
)
def test_goodput_counts_requests_that_meet_every_target(
    targets: LatencyTargets, num_good: int
) -> None:
    metrics = RunMetrics(targets)
    metrics.add(THREE_TOKENS, num_prompt_tokens=1)
    metrics.add(ONE_TOKEN, num_prompt_tokens=1)
    metrics.add_failure()
    assert metrics.to_json(duration_s=2.0)["goodput_requests_per_s"] == num_good / 2


def test_completions_of_one_request_have_latencies_of_their_own() -> None:
    metrics = RunMetrics(LatencyTargets(tpot_ms=600))
    metrics.add(
        RequestTimes(0.0, (1.0, 1.5)), RequestTimes(0.0, (2.0, 3.0, 4.0)), num_prompt_tokens=7
    )
    metrics.add(RequestTimes(0.0, (1.0, 1.5)), RequestTimes(0.0, (1.0,)), num_prompt_tokens=7)
    report = metrics.to_json(duration_s=1.0)
    assert (report["num_completed"], report["num_prompt_tokens"]) == (2, 14)
    assert report["num_output_tokens"] == 2 + 3 + 2 + 1
    assert report["ttft_ms"]["mean"] == 1250
    assert report["tpot_ms"]["mean"] == pytest.approx((500 + 1000 + 500) / 3)
    assert report["goodput_requests_per_s"] == 1
