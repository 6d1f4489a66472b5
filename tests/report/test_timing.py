from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from report_factory import CONFIG, make_subject
from step_factory import decode_step, prefill_step

from neuron_llm.report.run.last_run import LastRun, read_last_run
from neuron_llm.report.step_time.step_price import DEFAULT_STEP_PRICE
from neuron_llm.report.step_time.step_times import StepTimeSource
from neuron_llm.report.timing import choose_price, choose_timing
from neuron_llm.runtime.run_log import RunHeader, RunLogWriter, last_run_path
from neuron_llm.scheduler.buckets import BucketSet, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

ID = "0123456789abcdef"
BUCKETS = BucketSet((PrefillBucket(16), PrefillBucket(64)), (DecodeBucket(4, 256),))
PREFILLS = (prefill_step(9, size=16, seconds=0.25), prefill_step(40, size=64, seconds=1.0))
DECODE = decode_step(10, 11, size=4, room=256, seconds=0.125)


def log_of(directory: Path, steps: Iterable[StepRecord]) -> LastRun:
    header = RunHeader(ID, "2024-05-10T00:00:00+00:00")
    with RunLogWriter(last_run_path(ID, directory), header) as log:
        for step in steps:
            log.write(step)
    run = read_last_run(ID, BUCKETS, directory)
    assert run is not None
    return run


def test_without_a_log_there_is_no_run(tmp_path: Path) -> None:
    assert read_last_run(ID, BUCKETS, tmp_path) is None


def test_a_run_is_read_once_for_sums_prompts_and_times(tmp_path: Path) -> None:
    run = log_of(tmp_path, [*PREFILLS, DECODE])
    assert run.account.total.num_uses == 3
    assert run.prompts.work.num_computed_tokens == [9, 40]
    # A millisecond of the host is added.
    assert run.step_times.step_time(PrefillBucket(16)).seconds == pytest.approx(0.251)
    assert run.has_both_phases


def test_the_waits_of_a_run_are_those_of_the_steps_that_start_a_prompt(tmp_path: Path) -> None:
    waits = [0.25, None, 0.5, 1.0]
    steps = [replace(PREFILLS[1], queue_seconds=wait) for wait in waits]
    run = log_of(tmp_path, [*steps, DECODE])
    assert run.queue_ms.num_values == 3
    assert run.to_json() == {
        "started_at": "2024-05-10T00:00:00+00:00",
        "queue_ms": {
            "mean": pytest.approx(1750 / 3),
            "p50": 500.0,
            "p90": pytest.approx(900.0),
            "p99": pytest.approx(990.0),
            "max": 1000.0,
        },
    }


def test_a_run_that_did_not_note_waits_has_none(tmp_path: Path) -> None:
    waits = log_of(tmp_path, [*PREFILLS, DECODE]).to_json()["queue_ms"]
    assert waits == dict.fromkeys(["mean", "p50", "p90", "p99", "max"])


def test_measured_times_count_if_there_are_some_of_both_phases(tmp_path: Path) -> None:
    subject = make_subject(tmp_path)
    whole = choose_timing(
        subject, log_of(tmp_path, [*PREFILLS, DECODE]), target=None, live_context_tokens=None
    )
    assert whole.description.startswith("measured in the last run")
    assert whole.step_times.step_time(PrefillBucket(16)).source is StepTimeSource.MEASURED
    partial = choose_timing(
        subject, log_of(tmp_path, PREFILLS), target=None, live_context_tokens=None
    )
    assert partial.description.startswith("roofline of cpu")


def test_a_target_is_taken_in_any_case_and_else_the_one_compiled_for(tmp_path: Path) -> None:
    run = log_of(tmp_path, [*PREFILLS, DECODE])
    asked = choose_timing(make_subject(tmp_path), run, target="inf2", live_context_tokens=None)
    assert asked.description.startswith("roofline of inf2")
    neuron = make_subject(tmp_path, f"backend: neuron\ndtype: bfloat16\n{CONFIG}  target: trn2\n")
    planned = choose_timing(neuron, None, target=None, live_context_tokens=None)
    assert planned.description.startswith("roofline of trn2")


def test_the_price_is_asked_measured_or_assumed_in_that_order(tmp_path: Path) -> None:
    run = log_of(tmp_path, PREFILLS)
    assert choose_price(None, None, [16, 64]) == DEFAULT_STEP_PRICE
    measured = choose_price(run, None, [16, 64])
    # 250 ms and 1000 ms: through zero, as the line would begin at 0.
    assert (measured.unit, measured.step) == ("ms", 0)
    assert measured.token == pytest.approx(15.625)
    timing = choose_timing(make_subject(tmp_path), run, target="trn2", live_context_tokens=None)
    bound = choose_price(run, timing, [64, 2**20])
    assert bound.unit == "ms" and bound.token > 0
    # One size tells no line.
    assert choose_price(log_of(tmp_path, PREFILLS[:1]), None, [16]) == DEFAULT_STEP_PRICE
