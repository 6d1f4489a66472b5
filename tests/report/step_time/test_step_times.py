"""Step times from a recorded run: medians, and estimates for what never ran."""

from __future__ import annotations

import pytest
from step_factory import decode_step, prefill_step

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.step_time.step_times import MeasuredStepTimes, StepTime, StepTimeSource
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

MEASURED, ESTIMATED = StepTimeSource.MEASURED, StepTimeSource.ESTIMATED


def prefills(size: int, *seconds: float) -> list[StepRecord]:
    return [prefill_step(1, size=size, seconds=each) for each in seconds]


def decodes(rows: int, room: int, *seconds: float) -> list[StepRecord]:
    return [decode_step(2, size=rows, room=room, seconds=each) for each in seconds]


def test_a_measured_time_is_the_median() -> None:
    times = MeasuredStepTimes(prefills(128, 3.0, 1.0, 50.0))
    assert times.step_time(PrefillBucket(128)) == StepTime(3.0, MEASURED)


def test_the_host_adds_to_every_step() -> None:
    times = MeasuredStepTimes(prefills(128, 3.0) + prefills(256, 5.0), overhead_s=0.25)
    assert times.step_time(PrefillBucket(128)) == StepTime(3.25, MEASURED)
    assert times.step_time(PrefillBucket(192)) == StepTime(4.25, ESTIMATED)


def test_prefills_are_estimated_along_their_tokens() -> None:
    times = MeasuredStepTimes(prefills(128, 2.0) + prefills(512, 5.0))
    assert times.step_time(PrefillBucket(256)) == StepTime(3.0, ESTIMATED)


@pytest.mark.parametrize(
    ("bucket", "seconds"),
    [
        # Between the rows of one context.
        (DecodeBucket(3, 128), 3.0),
        # Between contexts, of equal rows.
        (DecodeBucket(4, 192), 5.0),
        # Rows first: 3 and 5 in the two contexts, then half way.
        (DecodeBucket(3, 192), 4.0),
    ],
)
def test_decodes_are_estimated_along_rows_and_then_along_context(
    bucket: Bucket, seconds: float
) -> None:
    steps = decodes(2, 128, 2.0) + decodes(4, 128, 4.0)
    steps += decodes(2, 256, 4.0) + decodes(4, 256, 6.0)
    assert MeasuredStepTimes(steps).step_time(bucket) == StepTime(seconds, ESTIMATED)


@pytest.mark.parametrize(
    ("steps", "bucket", "phase"),
    [
        (prefills(8, 1.0), DecodeBucket(1, 128), "decode"),
        (decodes(1, 128, 1.0), PrefillBucket(8), "prefill"),
    ],
)
def test_a_phase_that_never_ran_is_an_error(
    steps: list[StepRecord], bucket: Bucket, phase: str
) -> None:
    with pytest.raises(NeuronLLMError, match=f"no {phase} step") as caught:
        MeasuredStepTimes(steps).step_time(bucket)
    assert caught.value.hint is not None


def test_a_step_that_the_clock_did_not_see_takes_some_time() -> None:
    times = MeasuredStepTimes(prefills(128, 0.0))
    assert times.step_time(PrefillBucket(128)).seconds > 0
    assert times.step_time(PrefillBucket(16)).seconds > 0
