"""The phases of a step, timed; whoever watches is told what the step cost."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from neuron_llm.runtime.engine.live_requests import LiveRequests
from neuron_llm.runtime.engine.outputs import StepOutput
from neuron_llm.runtime.engine.phases import StepPhases
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.step import GraphCall, PreparedStep, SampledStep
from neuron_llm.runtime.sampling.logprobs import PromptScores
from neuron_llm.runtime.watch.observer import EngineObserver
from neuron_llm.runtime.watch.step_trace import StepTrace, Stopwatch
from neuron_llm.scheduler import EngineCoreOutput, NeuronScheduler, SchedulerOutput, SchedulerStats
from neuron_llm.scheduler.step_record import StepRecord

_logger = logging.getLogger(__name__)


class TimedPhases(StepPhases):
    """Does what `StepPhases` does and notes when; one step.

    Args:
        scheduler: see `StepPhases`.
        runner: see `StepPhases`.
        requests: see `StepPhases`.
        clock: seconds; only differences count.
        on_step: told what each of the step's graphs cost, when the step is over.
        observer: told the same, with the queues and the host's work.
    """

    def __init__(
        self,
        scheduler: NeuronScheduler,
        runner: ModelRunner,
        requests: LiveRequests,
        *,
        clock: Callable[[], float],
        on_step: Callable[[StepRecord], None],
        observer: EngineObserver,
    ) -> None:
        super().__init__(scheduler, runner, requests)
        self._on_step = on_step
        self._observer = observer
        self._host = Stopwatch(clock)
        self._graphs = Stopwatch(clock)
        self._stats: SchedulerStats | None = None
        self._queue_seconds: float | None = None

    def schedule(self) -> SchedulerOutput:
        """See `StepPhases`."""
        with self._host.time("schedule"):
            scheduled = super().schedule()
        self._stats = self._scheduler.last_stats
        return scheduled

    def prepare(self, scheduled: SchedulerOutput) -> PreparedStep | None:
        """See `StepPhases`."""
        with self._host.time("prepare"):
            return super().prepare(scheduled)

    def run(self, step: PreparedStep, call: GraphCall) -> torch.Tensor:
        """See `StepPhases`."""
        with self._graphs.time(call.bucket.name):
            return super().run(step, call)

    def score_prompt(
        self, scores: PromptScores, call: GraphCall, logits: torch.Tensor
    ) -> torch.Tensor:
        """See `StepPhases`."""
        with self._host.time("sample"):
            return super().score_prompt(scores, call, logits)

    def sample(self, step: PreparedStep, outputs: torch.Tensor) -> SampledStep:
        """See `StepPhases`."""
        with self._host.time("sample"):
            return super().sample(step, outputs)

    def update(self, sampled: SampledStep) -> list[EngineCoreOutput]:
        """See `StepPhases`; a request whose first step it is has begun with the first graph."""
        self._queue_seconds = self._requests.start(sampled.step, self._graphs.spans[0].started)
        with self._host.time("update"):
            return super().update(sampled)

    def publish(
        self, sampled: SampledStep, core_outputs: list[EngineCoreOutput]
    ) -> list[StepOutput]:
        """See `StepPhases`; then the step is over."""
        with self._host.time("publish"):
            outputs = super().publish(sampled, core_outputs)
        self._tell(sampled.step)
        return outputs

    def _tell(self, step: PreparedStep) -> None:
        """Tell what each graph of the step cost; what is the whole step's comes with the first."""
        assert self._stats is not None, "it has been scheduled"
        num_cached_tokens, queue_seconds = step.num_cached_tokens, self._queue_seconds
        host = tuple(self._host.spans)
        for call, graph in zip(step.calls, self._graphs.spans, strict=True):
            record = call.record(graph.ended - graph.started, num_cached_tokens, queue_seconds)
            self._on_step(record)
            self._observer.on_step(StepTrace(record, self._stats, graph, host))
            _logger.debug("%s, %.3f ms: %s", graph.name, record.seconds * 1000, self._stats)
            num_cached_tokens, queue_seconds, host = 0, None, ()
