"""The requests that have not ended: begun and ended alike in the scheduler, the runner and text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine.input_processor import NewSequence
from neuron_llm.runtime.engine.live_request import LiveRequest
from neuron_llm.runtime.engine.outputs import RequestOutput, StepOutput
from neuron_llm.runtime.engine.parallel_sampling import ParallelSampling
from neuron_llm.runtime.engine.request_logprobs import RequestLogprobs
from neuron_llm.runtime.engine.runner import ModelRunner
from neuron_llm.runtime.engine.step import PreparedStep, SampledStep
from neuron_llm.runtime.text.detokenizer import IncrementalDetokenizer
from neuron_llm.runtime.text.token_texts import TokenTexts
from neuron_llm.runtime.text.tokenizer import Tokenizer
from neuron_llm.runtime.watch.observer import EngineObserver
from neuron_llm.scheduler import EngineCoreOutput, NeuronScheduler, RequestStatus


class LiveRequests:
    """All requests of an engine that have not ended.

    Args:
        scheduler: schedules them.
        runner: computes them.
        tokenizer: the model's.
        observer: told when one begins, has its first token, and ends.
        clock: seconds; only differences count.

    Attributes:
        scheduler: schedules them.
    """

    def __init__(
        self,
        scheduler: NeuronScheduler,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        *,
        observer: EngineObserver,
        clock: Callable[[], float],
    ) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._tokenizer = tokenizer
        self._token_texts = TokenTexts(tokenizer)
        self._observer = observer
        self._clock = clock
        self._live: dict[str, LiveRequest] = {}
        self._parallel = ParallelSampling()

    def add(self, request_id: str, sequences: Iterable[NewSequence]) -> None:
        """Queue the completions of a request.

        Raises:
            RequestError: it can never be run, or an unfinished one has its id; nothing is queued.
        """
        self._parallel.check_is_new(request_id)
        added: list[str] = []
        try:
            for sequence in sequences:
                self._add_sequence(sequence)
                added.append(sequence.request.request_id)
        except RequestError:
            self._abort_sequences(added)
            raise
        self._parallel.begin(request_id, added)

    def abort(self, request_ids: Iterable[str]) -> list[RequestOutput]:
        """End requests now; return what they have got. Unknown ids are ignored."""
        ended = self._abort_sequences(self._parallel.expand(request_ids))
        outputs = (StepOutput(result.request_id, "", result) for result in ended)
        results = (self._parallel.outside(output).result for output in outputs)
        return [result for result in results if result is not None]

    def forget_all(self, scheduler: NeuronScheduler) -> None:
        """End every request without a result; those to come are scheduled by `scheduler`."""
        forgotten, self._live = self._live, {}
        self.scheduler = scheduler
        self._runner.forget_requests()
        self._parallel.clear()
        for request_id in forgotten:
            self._observer.on_request_ended(request_id, self._clock(), "abort")

    def start(self, step: PreparedStep, at: float) -> float | None:
        """Take in when a step began.

        Returns:
            for how many seconds the request had waited whose first step it was, if it was.
        """
        row = step.rows[0]
        is_start = step.scheduler_output.scheduled_new_reqs and self._runner.is_live(row)
        return self._live[row.req_id].start(at) if is_start else None

    def publish(
        self, sampled: SampledStep, core_outputs: Iterable[EngineCoreOutput]
    ) -> list[StepOutput]:
        """Return what a step gave its requests, as text; end those that it ends.

        Args:
            sampled: what the step gave.
            core_outputs: what the scheduler made of it.
        """
        outputs = [self._publish(output, sampled) for output in core_outputs]
        outputs += self._end_failed(sampled)
        return [self._parallel.outside(output) for output in outputs]

    def _add_sequence(self, sequence: NewSequence) -> None:
        request, params = sequence.request, sequence.sampling.params
        request_id, prompt = request.request_id, request.prompt_token_ids
        self.scheduler.add_request(request)
        self._runner.add_sampling(request_id, sequence.sampling)
        self._live[request_id] = LiveRequest(
            request,
            IncrementalDetokenizer(self._tokenizer, prompt, params),
            RequestLogprobs(self._token_texts, prompt, with_output=params.logprobs is not None),
        )
        self._observer.on_request_added(request_id, request.arrival_time)

    def _abort_sequences(self, sequence_ids: Iterable[str]) -> list[RequestOutput]:
        ended = self.scheduler.finish_requests(sequence_ids, RequestStatus.FINISHED_ABORTED)
        return [self._end(sequence_id, "abort") for sequence_id in ended]

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
        failed = {
            failure.row.req_id: failure.error.message
            for failure in sampled.failures
            if self._runner.is_live(failure.row)
        }
        self.scheduler.finish_requests(failed, RequestStatus.FINISHED_ABORTED)
        return [
            StepOutput(request_id, "", self._end(request_id, "error", error=message))
            for request_id, message in failed.items()
        ]

    def _end(
        self,
        request_id: str,
        finish_reason: str,
        *,
        stop_reason: int | str | None = None,
        error: str | None = None,
    ) -> RequestOutput:
        self._runner.remove_sampling(request_id)
        self._observer.on_request_ended(request_id, self._clock(), finish_reason)
        live = self._live.pop(request_id)
        return live.end(finish_reason, stop_reason=stop_reason, error=error)
