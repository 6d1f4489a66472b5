"""Load over time: means by time, and greatest values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.simulate.timeline import Load, Timeline, TimelineBin


def test_a_bin_averages_over_time_with_nothing_where_nothing_runs() -> None:
    timeline = Timeline()
    timeline.add(0.0, 1.0, Load(4, 2, 8))
    timeline.add(3.0, 4.0, Load(2, 0, 10))
    assert timeline.bins(2) == [
        TimelineBin(0.0, 2.0, Load(2, 1, 4), Load(4, 2, 8)),
        TimelineBin(2.0, 4.0, Load(1, 0, 5), Load(2, 0, 10)),
    ]
    assert timeline.total == TimelineBin(0.0, 4.0, Load(1.5, 0.5, 4.5), Load(4, 2, 10))


def test_a_step_lies_in_every_bin_that_it_reaches_into() -> None:
    timeline = Timeline()
    timeline.add(0.0, 6.0, Load(6, 0, 0))
    timeline.add(6.0, 8.0, Load(1, 0, 0))
    bins = timeline.bins(4)
    assert [each.mean.num_running for each in bins] == [6, 6, 6, 1]
    assert [each.greatest.num_running for each in bins] == [6, 6, 6, 1]


def test_an_empty_run_has_empty_bins() -> None:
    nothing = Load(0, 0, 0)
    assert Timeline().bins(2) == [TimelineBin(0.0, 0.0, nothing, nothing)] * 2


def test_the_json_names_every_number() -> None:
    timeline = Timeline()
    timeline.add(0.0, 2.0, Load(4, 2, 8))
    assert timeline.total.to_json() == {
        "started_s": 0.0,
        "ended_s": 2.0,
        "mean_num_running": 4.0,
        "mean_num_waiting": 2.0,
        "mean_num_used_blocks": 8.0,
        "max_num_running": 4,
        "max_num_waiting": 2,
        "max_num_used_blocks": 8,
    }


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.floats(0.001, 10), st.integers(0, 9)),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 50),
)
def test_bins_lose_nothing(drawn: list[tuple[float, float, int]], num_bins: int) -> None:
    timeline, now, total = Timeline(), 0.0, 0.0
    for idle, seconds, running in drawn:
        started = now + idle
        now = started + seconds
        timeline.add(started, now, Load(running, 0, 0))
        total += running * (now - started)
    bins = timeline.bins(num_bins)
    width = now / num_bins
    assert sum(each.mean.num_running * width for each in bins) == pytest.approx(total, abs=1e-6)
    assert max(each.greatest.num_running for each in bins) == max(r for _, _, r in drawn)
    assert all(each.mean.num_running <= each.greatest.num_running + 1e-6 for each in bins)
