"""The engine with a step ahead: while a graph runs, the host schedules and prepares the next step.

    graph thread   | execute N     |sample| execute N + 1     |sample| execute N + 2
    this thread     schedule N + 1  ......  update, publish N  ......  update, publish N + 1
                    prepare N + 1           schedule N + 2             schedule N + 3
                                            prepare N + 2              prepare N + 3

The prepared step is handed over before the running one is over, so that the graph thread turns from
one to the next without waiting for anybody: between two graphs lies only the sampling of the tokens
that the second one needs. What is found out when the next step has begun, an end of sequence, a
stop string, an abort, costs one row of that step. Every request gets the tokens that `Engine` gives
it. Since its end comes to the scheduler's notice one step later, another request may start a step
later, and find more or fewer prompt tokens in the prefix cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.runtime.engine.engine import Engine, ignore_step
from neuron_llm.runtime.engine.graph_thread import GraphThread, HandedOver
from neuron_llm.runtime.engine.options import DEFAULT_OPTIONS, EngineOptions
from neuron_llm.runtime.engine.outputs import StepOutput
from neuron_llm.runtime.engine.phases import StepPhases
from neuron_llm.runtime.engine.step import PreparedStep, SampledStep
from neuron_llm.runtime.watch.observer import EngineObserver
from neuron_llm.scheduler import NeuronAsyncScheduler, NeuronScheduler
from neuron_llm.scheduler.step_record import StepRecord


@dataclass(frozen=True)
class _StepInFlight:
    step: StepPhases
    sampled: HandedOver[SampledStep]


class AsyncEngine(Engine):
    """An engine that keeps one step in flight; see `Engine`.

    The graph thread ends with the engine; at the end of the process the graph that runs is waited
    for.
    """

    scheduler_class: type[NeuronScheduler] = NeuronAsyncScheduler

    def __init__(
        self,
        artifact: Artifact,
        options: EngineOptions = DEFAULT_OPTIONS,
        *,
        on_step: Callable[[StepRecord], None] = ignore_step,
        observer: EngineObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(artifact, options, on_step=on_step, observer=observer, clock=clock)
        self._graph_thread = GraphThread()
        self._in_flight: _StepInFlight | None = None

    def has_unfinished_requests(self) -> bool:
        """See `Engine`; a step in flight is something to do."""
        return self._in_flight is not None or super().has_unfinished_requests()

    def step(self) -> list[StepOutput]:
        """Hand over the next step and return what the one before it gave each of its requests.

        The first call returns nothing. See `Engine` for what it raises.
        """
        with self._emptied_by_exceptions():
            step = self._begin_step()
            scheduled = step.schedule()
            prepared = step.prepare(scheduled)
            before = self._in_flight
            self._in_flight = None if prepared is None else self._hand_over(step, prepared)
            if before is None:
                return []
            sampled = before.sampled.result()
            core_outputs = before.step.update(sampled)
            return before.step.publish(sampled, core_outputs)

    def _hand_over(self, step: StepPhases, prepared: PreparedStep) -> _StepInFlight:
        def execute_and_sample() -> SampledStep:
            outputs = step.execute(prepared)
            return step.sample(prepared, outputs)

        return _StepInFlight(step, self._graph_thread.hand_over(execute_and_sample))

    def _begin_anew(self) -> None:
        # What has been handed over is over before the next step begins; nobody asks for its result.
        self._in_flight = None
        super()._begin_anew()
