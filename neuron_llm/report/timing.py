"""Which step times a report counts with: those of a run, or a device's bound. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuron_llm.report.run.last_run import LastRun
from neuron_llm.report.step_time.roofline import (
    DEFAULT_STEP_OVERHEAD_S,
    RooflineStepTimes,
    roofline_device,
)
from neuron_llm.report.step_time.step_price import DEFAULT_STEP_PRICE, StepPrice, fit_step_price
from neuron_llm.report.step_time.step_times import StepTimes
from neuron_llm.report.subject import ReportSubject
from neuron_llm.scheduler.buckets import PrefillBucket


@dataclass(frozen=True)
class Timing:
    """Step times, and in words where they come from.

    Attributes:
        step_times: of every graph.
        description: for people, such as `roofline of cpu`.
    """

    step_times: StepTimes
    description: str


def choose_timing(
    subject: ReportSubject,
    last_run: LastRun | None,
    *,
    target: str | None,
    live_context_tokens: int | None,
) -> Timing:
    """Return the times of a run if it had steps of both phases, and else a device's bound.

    Args:
        subject: whose model and limits count.
        last_run: of the subject; None if there was none.
        target: the device whose bound is wanted in any case; None for the one that is compiled for
            where nothing was measured.
        live_context_tokens: how many tokens a decoding request has on average.

    Raises:
        NeuronLLMError: there are no figures of such a target.
    """
    host = f"{DEFAULT_STEP_OVERHEAD_S * 1e3:g} ms of the host added to each step"
    if target is None and last_run is not None and last_run.has_both_phases:
        return Timing(last_run.step_times, f"measured in the last run, {host}")
    plan = subject.plan
    name = target or (plan.neuron.target if plan.neuron else "cpu")
    cores = plan.neuron.logical_nc_config if plan.neuron and plan.neuron.target == name else None
    times = RooflineStepTimes(
        plan.model,
        plan.dtype,
        roofline_device(name, cores),
        max_model_len=plan.max_model_len,
        live_context_tokens=live_context_tokens,
    )
    return Timing(times, f"roofline of {name} (a bound, no forecast), {host}")


def choose_price(
    last_run: LastRun | None, timing: Timing | None, sizes: Sequence[int]
) -> StepPrice:
    """Return what a prefill step costs: by `timing`, else as the last run measured, else assumed.

    Args:
        last_run: None if there was none.
        timing: of a device that was asked for; None if none was.
        sizes: of prefill buckets, for which `timing` is asked.
    """
    if timing is not None:
        ms = {
            size: timing.step_times.step_time(PrefillBucket(size)).seconds * 1e3 for size in sizes
        }
    elif last_run is not None:
        ms = {
            bucket.num_tokens: counts.mean_ms
            for bucket, counts in last_run.account.by_bucket.items()
            if isinstance(bucket, PrefillBucket) and counts.mean_ms is not None
        }
    else:
        return DEFAULT_STEP_PRICE
    return fit_step_price(ms) or DEFAULT_STEP_PRICE
