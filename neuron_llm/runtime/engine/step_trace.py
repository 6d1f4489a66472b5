"""One step for whoever watches: what it cost, what the queues were like, where its time went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from neuron_llm.scheduler.stats import SchedulerStats
from neuron_llm.scheduler.step_record import StepRecord


@dataclass(frozen=True, slots=True)
class Span:
    """A named stretch of time, in seconds on the engine's clock."""

    name: str
    started: float
    ended: float


class Stopwatch:
    """Times the parts of a step.

    Args:
        clock: seconds; only differences count.

    Attributes:
        spans: what has been timed, in order.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.spans: list[Span] = []
        self._clock = clock

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Add the block's span when it ends well."""
        started = self._clock()
        yield
        self.spans.append(Span(name, started, self._clock()))


@dataclass(frozen=True, slots=True)
class StepTrace:
    """A step that is over.

    Attributes:
        record: what it cost.
        stats: the queues when it was scheduled.
        graph: when its graph ran.
        host: what else was done for it, in order: before, after and, for other steps, during that.
    """

    record: StepRecord
    stats: SchedulerStats
    graph: Span
    host: tuple[Span, ...]
