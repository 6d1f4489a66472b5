"""A step of the engine: what it is before its graph runs, and what it has given after."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.runtime.engine.step import PreparedStep, SampledStep
from neuron_llm.runtime.engine.step_trace import Span, Stopwatch
from neuron_llm.scheduler import SchedulerOutput, SchedulerStats


@dataclass(frozen=True)
class PlannedStep:
    """A step that has been scheduled.

    Attributes:
        scheduler_output: what it computes.
        stats: the queues when it was scheduled.
        prepared: its graph and inputs.
        stopwatch: what the host does for it.
    """

    scheduler_output: SchedulerOutput
    stats: SchedulerStats
    prepared: PreparedStep
    stopwatch: Stopwatch


@dataclass(frozen=True)
class ExecutedStep:
    """What a step has given.

    Attributes:
        graphs: when each of its graphs ran; named after the bucket.
        sampled: the tokens.
    """

    graphs: tuple[Span, ...]
    sampled: SampledStep
