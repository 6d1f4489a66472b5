"""The engine: prompts in, text out, one graph per step.

A step is: schedule, run the bucket's graph on padded inputs, update, turn tokens into text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.exception_guard import ExceptionGuard
from neuron_llm.runtime.engine.live_request import LiveRequest
from neuron_llm.runtime.engine.observer import EngineObserver, NoObserver
from neuron_llm.runtime.engine.options import DEFAULT_OPTIONS, EngineOptions
from neuron_llm.runtime.engine.outputs import RequestOutput, StepOutput
from neuron_llm.runtime.engine.parallel_sampling import ParallelSampling
from neuron_llm.runtime.engine.request_logprobs import RequestLogprobs
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.step import SampledStep
from neuron_llm.runtime.engine.step_trace import Span, StepTrace, Stopwatch
from neuron_llm.runtime.planned_step import ExecutedStep, PlannedStep
from neuron_llm.runtime.sampling.graph_sampler import sampler_of
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.sampling.sampling_state import SamplingState
from neuron_llm.runtime.sampling.vocabulary_check import check_prompt, check_sampling
from neuron_llm.runtime.text.bad_words import bad_words_token_ids
from neuron_llm.runtime.text.detokenizer import IncrementalDetokenizer
from neuron_llm.runtime.text.token_texts import TokenTexts
from neuron_llm.runtime.text.tokenizer import Tokenizer, eos_token_ids
from neuron_llm.scheduler import (
    EngineCoreOutput,
    NeuronScheduler,
    Request,
    RequestStatus,
)
from neuron_llm.scheduler.step_record import StepRecord

_logger = logging.getLogger(__name__)


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
        scheduler: the holdback scheduler.
        runner: the model runner.
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
        self.eos_token_ids = eos_token_ids(artifact.directory, self.tokenizer)
        self.scheduler = self.scheduler_class(
            artifact.scheduler_config(reproducible=options.reproducible)
        )
        self.runner = ModelRunner(
            artifact.load(self_test=options.self_test),
            artifact.buckets(reproducible=options.reproducible),
            sampler_of(artifact.manifest, self.eos_token_ids),
            max_model_len=settings.max_model_len,
            block_size=settings.block_size,
        )
        self.on_step = on_step
        self._observer = observer or NoObserver()
        self._clock = clock
        self._token_texts = TokenTexts(self.tokenizer)
        self._live: dict[str, LiveRequest] = {}
        self._parallel = ParallelSampling()

    def add_request(
        self, request_id: str, prompt_token_ids: Sequence[int], params: SamplingParams
    ) -> None:
        """Queue a request.

        Raises:
            RequestError: it can never be run; nothing is queued. After any other exception, Ctrl-C
                included, the engine is empty.
        """
        vocab_size = self.artifact.manifest.model.vocab_size
        check_prompt(prompt_token_ids, vocab_size)
        self.runner.sampler.check(params)
        bad_words = bad_words_token_ids(self.tokenizer, params.bad_words)
        check_sampling(params, bad_words, vocab_size)
        self._parallel.check_is_new(request_id)
        sequence_ids = ParallelSampling.sequence_ids(request_id, params.n)
        added: list[str] = []
        with self._emptied_by_exceptions(RequestError):
            try:
                for index, sequence_id in enumerate(sequence_ids):
                    state = self.runner.sampler.new_state(
                        sequence_id, params, prompt_token_ids, bad_words, index
                    )
                    self._add_sequence(prompt_token_ids, state)
                    added.append(sequence_id)
            except RequestError:
                self._abort_sequences(added)
                raise
            self._parallel.begin(request_id, sequence_ids)

    def _add_sequence(self, prompt_token_ids: Sequence[int], state: SamplingState) -> None:
        """Queue one completion of a request."""
        request_id, params = state.request_id, state.params
        is_scored = state.num_prompt_logprobs is not None
        room = max(self.scheduler.max_model_len - len(prompt_token_ids), 1)
        request = Request(
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            max_tokens=room if params.max_tokens is None else params.max_tokens,
            min_tokens=params.min_tokens,
            eos_token_ids=frozenset(self.eos_token_ids),
            stop_token_ids=frozenset(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
            skip_reading_prefix_cache=is_scored,
            max_shared_tokens=self.options.max_shared_tokens(len(prompt_token_ids), is_scored),
            arrival_time=self._clock(),
        )
        self.scheduler.add_request(request)
        self.runner.add_sampling(request_id, state)
        self._live[request_id] = LiveRequest(
            request_id,
            prompt_token_ids,
            IncrementalDetokenizer(self.tokenizer, prompt_token_ids, params),
            request.arrival_time,
            RequestLogprobs(
                self._token_texts, prompt_token_ids, with_output=params.logprobs is not None
            ),
        )
        self._observer.on_request_added(request_id, request.arrival_time)

    def abort_requests(self, request_ids: Iterable[str]) -> list[RequestOutput]:
        """End requests now; return what they have got. Unknown ids are ignored."""
        with self._emptied_by_exceptions():
            ended = self._abort_sequences(self._parallel.expand(request_ids))
            outputs = (StepOutput(result.request_id, "", result) for result in ended)
            results = (self._parallel.outside(output).result for output in outputs)
            return [result for result in results if result is not None]

    def _abort_sequences(self, sequence_ids: Iterable[str]) -> list[RequestOutput]:
        ended = self.scheduler.finish_requests(sequence_ids, RequestStatus.FINISHED_ABORTED)
        return [self._end(sequence_id, "abort") for sequence_id in ended]

    def has_unfinished_requests(self) -> bool:
        """Whether another step has anything to do."""
        return self.scheduler.has_unfinished_requests()

    def step(self) -> list[StepOutput]:
        """Run one step and return what it gave each of its requests.

        Raises:
            NoProgressError: requests are left and none can be scheduled. After this or any other
                exception, Ctrl-C included, the engine is empty and can be used again.
        """
        with self._emptied_by_exceptions():
            step = self._plan_step()
            return [] if step is None else self._complete(step, self._execute_step(step))

    def _emptied_by_exceptions(self, *harmless: type[BaseException]) -> ExceptionGuard:
        return ExceptionGuard(self._begin_anew, *harmless)

    def _begin_anew(self) -> None:
        """Forget all requests and KV blocks: what a step cut short has done to them is unknown."""
        forgotten, self._live = self._live, {}
        self.scheduler = self.scheduler_class(self.scheduler.config)
        self.runner.forget_requests()
        self._parallel.clear()
        for request_id in forgotten:
            self._observer.on_request_ended(request_id, self._clock(), "abort")

    def _plan_step(self) -> PlannedStep | None:
        """Schedule a step and prepare its inputs; None if there is nothing to compute."""
        stopwatch = Stopwatch(self._clock)
        with stopwatch.time("schedule"):
            scheduler_output = self.scheduler.schedule()
        with stopwatch.time("prepare"):
            prepared = self.runner.prepare(scheduler_output)
        stats = self.scheduler.last_stats
        assert stats is not None
        if prepared is None:
            return None
        return PlannedStep(scheduler_output, stats, prepared, stopwatch)

    def _execute_step(self, step: PlannedStep) -> ExecutedStep:
        """Run the graph and pick the tokens."""
        prepared, graphs = step.prepared, []
        for call in prepared.calls:
            started = self._clock()
            outputs = self.runner.run(prepared, call)
            graphs.append(Span(call.bucket.name, started, self._clock()))
            if prepared.prompt_scores is not None:
                with step.stopwatch.time("sample"):
                    outputs = self.runner.score_prompt(prepared.prompt_scores, call, outputs)
        with step.stopwatch.time("sample"):
            return ExecutedStep(tuple(graphs), self.runner.sample(prepared, outputs))

    def _complete(self, step: PlannedStep, executed: ExecutedStep) -> list[StepOutput]:
        """Take in what a step has given, and tell what it cost."""
        sampled = executed.sampled
        queue_seconds = self._note_start(step, executed.graphs[0].started)
        with step.stopwatch.time("update"):
            core_outputs = self.scheduler.update_from_output(step.scheduler_output, sampled.output)
        with step.stopwatch.time("publish"):
            outputs = [self._publish(output, sampled) for output in core_outputs]
            outputs += self._end_failed(sampled)
            outputs = [self._parallel.outside(output) for output in outputs]
        self._tell(step, executed.graphs, queue_seconds)
        return outputs

    def _note_start(self, step: PlannedStep, started: float) -> float | None:
        """Return for how many seconds the request had waited whose first step it was, if it was."""
        row = step.prepared.rows[0]
        is_start = step.scheduler_output.scheduled_new_reqs and self.runner.is_live(row)
        return self._live[row.req_id].start(started) if is_start else None

    def _tell(self, step: PlannedStep, graphs: Sequence[Span], queue_seconds: float | None) -> None:
        """Tell what each graph of a step cost; what is the whole step's is told with the first."""
        num_cached_tokens, spans = step.prepared.num_cached_tokens, tuple(step.stopwatch.spans)
        for call, graph in zip(step.prepared.calls, graphs, strict=True):
            record = call.record(graph.ended - graph.started, num_cached_tokens, queue_seconds)
            self.on_step(record)
            self._observer.on_step(StepTrace(record, step.stats, graph, spans))
            _logger.debug("%s, %.3f ms: %s", graph.name, record.seconds * 1000, step.stats)
            num_cached_tokens, queue_seconds, spans = 0, None, ()

    def _publish(self, output: EngineCoreOutput, sampled: SampledStep) -> StepOutput:
        """Turn a request's new tokens into text; end it if the text holds a stop string."""
        request_id, live, now = output.request_id, self._live[output.request_id], self._clock()
        if not live.has_tokens:
            self._observer.on_first_token(request_id, now)
        new_text = live.add(output, sampled, now)
        result = None
        if live.stop_string is not None:
            # The scheduler knows no text: for it the request may still be running.
            self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_STOPPED)
            result = self._end(request_id, "stop", stop_reason=live.stop_string)
        elif output.finish_reason is not None:
            reason = output.finish_reason.value
            result = self._end(request_id, reason, stop_reason=output.stop_reason)
        return StepOutput(request_id, new_text, result)

    def _end_failed(self, sampled: SampledStep) -> list[StepOutput]:
        """End the requests that the runner could not sample for."""
        failed = [(row.req_id, e) for row, e in sampled.failures if self.runner.is_live(row)]
        self.scheduler.finish_requests([i for i, _ in failed], RequestStatus.FINISHED_ABORTED)
        return [
            StepOutput(request_id, "", self._end(request_id, "error", error=error.message))
            for request_id, error in failed
        ]

    def _end(
        self,
        request_id: str,
        finish_reason: str,
        *,
        stop_reason: int | str | None = None,
        error: str | None = None,
    ) -> RequestOutput:
        self.runner.remove_sampling(request_id)
        self._observer.on_request_ended(request_id, self._clock(), finish_reason)
        live = self._live.pop(request_id)
        return live.end(finish_reason, stop_reason=stop_reason, error=error)
