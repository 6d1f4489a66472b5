"""One step for whoever watches: what it cost, what the queues were like, where its time went."""

from __future__ import annotations

from collections.abc import Callable
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

    def time(self, name: str) -> _Timing:
        """Add the block's span when it ends well."""
        return _Timing(name, self._clock, self.spans)


class _Timing:
    """A block that is being timed; its time begins here.

    Not a generator of `contextlib`, which costs half as much again, and a step has six and more.
    """

    __slots__ = ("_clock", "_name", "_spans", "_started")

    def __init__(self, name: str, clock: Callable[[], float], spans: list[Span]) -> None:
        self._name = name
        self._clock = clock
        self._spans = spans
        self._started = clock()

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            self._spans.append(Span(self._name, self._started, self._clock()))


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
