"""The engine: prompts in, text out, one graph per step. `Engine.step` is the step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.exception_guard import ExceptionGuard
from neuron_llm.runtime.engine.input_processor import InputProcessor
from neuron_llm.runtime.engine.live_requests import LiveRequests
from neuron_llm.runtime.engine.options import DEFAULT_OPTIONS, EngineOptions
from neuron_llm.runtime.engine.outputs import RequestOutput, StepOutput
from neuron_llm.runtime.engine.phases import StepPhases
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.timed_phases import TimedPhases
from neuron_llm.runtime.sampling.graph_sampler import sampler_of
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.text.tokenizer import Tokenizer, eos_token_ids
from neuron_llm.runtime.watch.observer import EngineObserver, NoObserver
from neuron_llm.scheduler import NeuronScheduler
from neuron_llm.scheduler.step_record import StepRecord


def ignore_step(_: StepRecord) -> None:
    """Keep no record of a step."""


class Engine:
    """One loaded artifact with its scheduler.

    Args:
        artifact: what to load.
        options: how to serve it.
        on_step: told what each step cost.
        observer: told what happens.
        clock: seconds; only differences count.

    Raises:
        ArtifactError: it cannot run here, or its self-test fails.

    Attributes:
        artifact: what was loaded.
        options: how it is served.
        tokenizer: the model's.
        runner: the model runner.
        requests: those that have not ended.
        on_step: told what each step cost.
    """

    scheduler_class: type[NeuronScheduler] = NeuronScheduler

    def __init__(
        self,
        artifact: Artifact,
        options: EngineOptions = DEFAULT_OPTIONS,
        *,
        on_step: Callable[[StepRecord], None] = ignore_step,
        observer: EngineObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        settings = artifact.manifest.settings
        self.artifact = artifact
        self.options = options
        self.tokenizer = Tokenizer.load(artifact.tokenizer_dir)
        self.runner = ModelRunner(
            artifact.load(self_test=options.self_test),
            artifact.buckets(reproducible=options.reproducible),
            sampler_of(artifact.manifest, eos_token_ids(artifact.directory, self.tokenizer)),
            max_model_len=settings.max_model_len,
            block_size=settings.block_size,
        )
        self.on_step = on_step
        self._observer = observer or NoObserver()
        self._clock = clock
        self._input_processor = InputProcessor(
            self.tokenizer,
            self.runner.sampler,
            options,
            vocab_size=artifact.manifest.model.vocab_size,
            max_model_len=settings.max_model_len,
            clock=clock,
        )
        self.requests = LiveRequests(
            self.scheduler_class(artifact.scheduler_config(reproducible=options.reproducible)),
            self.runner,
            self.tokenizer,
            observer=self._observer,
            clock=clock,
        )

    @property
    def scheduler(self) -> NeuronScheduler:
        """The holdback scheduler."""
        return self.requests.scheduler

    def step(self) -> list[StepOutput]:
        """Run one step and return what it gave each of its requests.

        Raises:
            NoProgressError: requests are left and none can be scheduled. After this or any other
                exception, Ctrl-C included, the engine is empty and can be used again.
        """
        with self._emptied_by_exceptions():
            step = self._begin_step()
            scheduled = step.schedule()
            prepared = step.prepare(scheduled)
            if prepared is None:
                return []
            outputs = step.execute(prepared)
            sampled = step.sample(prepared, outputs)
            core_outputs = step.update(sampled)
            return step.publish(sampled, core_outputs)

    def has_unfinished_requests(self) -> bool:
        """Whether another step has anything to do."""
        return self.scheduler.has_unfinished_requests()

    def add_request(
        self, request_id: str, prompt_token_ids: Sequence[int], params: SamplingParams
    ) -> None:
        """Queue a request.

        Raises:
            RequestError: it can never be run; nothing is queued. After any other exception, Ctrl-C
                included, the engine is empty.
        """
        sequences = self._input_processor.sequences(request_id, prompt_token_ids, params)
        with self._emptied_by_exceptions(RequestError):
            self.requests.add(request_id, sequences)

    def abort_requests(self, request_ids: Iterable[str]) -> list[RequestOutput]:
        """End requests now; return what they have got. Unknown ids are ignored."""
        with self._emptied_by_exceptions():
            return self.requests.abort(request_ids)

    def _begin_step(self) -> StepPhases:
        return TimedPhases(
            self.scheduler,
            self.runner,
            self.requests,
            clock=self._clock,
            on_step=self.on_step,
            observer=self._observer,
        )

    def _emptied_by_exceptions(self, *harmless: type[BaseException]) -> ExceptionGuard:
        return ExceptionGuard(self._begin_anew, *harmless)

    def _begin_anew(self) -> None:
        """Forget all requests and KV blocks: what a step cut short has done to them is unknown."""
        self.requests.forget_all(self.scheduler_class(self.scheduler.config))
