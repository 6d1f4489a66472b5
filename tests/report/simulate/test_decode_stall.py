"""The longest stall of a run."""

from __future__ import annotations

from neuron_llm.report.simulate.decode_occupancy import DecodeStall, StallWatch


def test_prefills_in_a_row_are_one_stall() -> None:
    watch = StallWatch()
    watch.add_prefill(0.0, 1.0, 2)
    watch.add_prefill(1.0, 4.0, 3)
    watch.add_decode()
    watch.add_prefill(5.0, 7.0, 1)
    assert watch.longest == DecodeStall(0.0, 4.0, 2, 2)


def test_a_later_stall_may_be_longer_and_of_equals_the_first_counts() -> None:
    watch = StallWatch()
    watch.add_prefill(0.0, 1.0, 1)
    watch.add_decode()
    watch.add_prefill(2.0, 3.0, 1)
    assert watch.longest == DecodeStall(0.0, 1.0, 1, 1)
    watch.add_decode()
    watch.add_prefill(4.0, 6.0, 1)
    assert watch.longest is not None
    assert watch.longest.to_json() == {
        "started_s": 4.0,
        "duration_ms": 2000.0,
        "num_prefills": 1,
        "num_seqs": 1,
    }


def test_a_prefill_that_nobody_waits_for_is_none() -> None:
    watch = StallWatch()
    watch.add_prefill(0.0, 9.0, 0)
    assert watch.longest is None
    watch.add_prefill(9.0, 10.0, 1)
    assert watch.longest == DecodeStall(9.0, 1.0, 1, 1)
