"""The engine: prompts in, text out, one graph per step.

A step is: schedule, run the bucket's graph on padded inputs, update, turn tokens into text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from neuron_llm.errors import RequestError
from neuron_llm.runtime.artifact import Artifact
from neuron_llm.runtime.detokenizer import IncrementalDetokenizer
from neuron_llm.runtime.outputs import (
    CompletionOutput,
    RequestOutput,
    RequestTimes,
    StepOutput,
)
from neuron_llm.runtime.runner import ModelRunner
from neuron_llm.runtime.sampler import Sampler
from neuron_llm.runtime.sampling_params import SamplingParams
from neuron_llm.runtime.tokenizer import Tokenizer, eos_token_ids
from neuron_llm.scheduler import (
    EngineCoreOutput,
    FinishReason,
    NeuronScheduler,
    Request,
    RequestStatus,
)
from neuron_llm.scheduler.step_record import StepRecord


@dataclass
class _Live:
    """A request that has not finished."""

    prompt_token_ids: tuple[int, ...]
    detokenizer: IncrementalDetokenizer
    arrival: float
    token_ids: list[int] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    num_cached_tokens: int = 0


def _ignore_step(_: StepRecord) -> None:
    """Keep no record of a step."""


class Engine:
    """One loaded artifact with its scheduler.

    Args:
        artifact: what to load.
        on_step: told what each step cost.
        clock: seconds; only differences count.

    Attributes:
        artifact: what was loaded.
        tokenizer: the model's.
        scheduler: the holdback scheduler.
        runner: the model runner.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        on_step: Callable[[StepRecord], None] = _ignore_step,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        settings = artifact.manifest.settings
        self.artifact = artifact
        self.tokenizer = Tokenizer.load(artifact.tokenizer_dir)
        self.eos_token_ids = eos_token_ids(artifact.directory, self.tokenizer)
        self.scheduler = NeuronScheduler(artifact.scheduler_config())
        self.runner = ModelRunner(
            artifact.load(),
            artifact.manifest.buckets,
            Sampler(self.eos_token_ids),
            max_model_len=settings.max_model_len,
            block_size=settings.block_size,
            on_step=on_step,
        )
        self._clock = clock
        self._live: dict[str, _Live] = {}

    def add_request(
        self, request_id: str, prompt_token_ids: Sequence[int], params: SamplingParams
    ) -> None:
        """Queue a request.

        Raises:
            RequestError: it can never be run; nothing is queued.
        """
        self._check_token_ids(prompt_token_ids)
        max_model_len = self.scheduler.max_model_len
        room = max(max_model_len - len(prompt_token_ids), 1)
        request = Request(
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            max_tokens=room if params.max_tokens is None else params.max_tokens,
            min_tokens=params.min_tokens,
            eos_token_ids=frozenset(self.eos_token_ids),
            stop_token_ids=frozenset(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
            arrival_time=self._clock(),
        )
        self.scheduler.add_request(request)
        self.runner.add_sampling(request_id, params)
        self._live[request_id] = _Live(
            tuple(prompt_token_ids),
            IncrementalDetokenizer(self.tokenizer, prompt_token_ids, params),
            request.arrival_time,
        )

    def abort_requests(self, request_ids: Iterable[str]) -> list[RequestOutput]:
        """End requests now; return what they have got. Unknown ids are ignored."""
        ended = self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)
        return [self._end(request_id, "abort") for request_id in ended]

    def has_unfinished_requests(self) -> bool:
        """Whether another step has anything to do."""
        return self.scheduler.has_unfinished_requests()

    def step(self) -> list[StepOutput]:
        """Run one step and return what it gave each of its requests.

        Raises:
            NoProgressError: requests are left and none can be scheduled.
        """
        scheduler_output = self.scheduler.schedule()
        runner_output = self.runner.execute(scheduler_output)
        core_outputs = self.scheduler.update_from_output(scheduler_output, runner_output)
        return [*map(self._publish, core_outputs), *self._end_failed()]

    def _publish(self, output: EngineCoreOutput) -> StepOutput:
        """Turn a request's new tokens into text; end it if the text holds a stop string."""
        request_id, live = output.request_id, self._live[output.request_id]
        live.num_cached_tokens = output.num_cached_tokens
        live.token_ids.extend(output.new_token_ids)
        live.token_times.extend([self._clock()] * len(output.new_token_ids))
        detokenizer, reason = live.detokenizer, output.finish_reason
        *others, last = output.new_token_ids
        new_text = "".join(detokenizer.push(token_id) for token_id in others)
        if reason is FinishReason.STOP:
            new_text += detokenizer.finish(ending_token_id=last)
        else:
            new_text += detokenizer.push(last)
        if reason is FinishReason.LENGTH:
            new_text += detokenizer.finish()

        if detokenizer.stop_reason is not None:
            # The scheduler knows no text: for it the request may still be running.
            self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_STOPPED)
            result = self._end(request_id, "stop", stop_reason=detokenizer.stop_reason)
        elif reason is not None:
            result = self._end(request_id, reason.value, stop_reason=output.stop_reason)
        else:
            result = None
        return StepOutput(request_id, new_text, result)

    def _end_failed(self) -> list[StepOutput]:
        """End the requests that the runner could not sample for."""
        failures, self.runner.failures = self.runner.failures, {}
        self.scheduler.finish_requests(failures, RequestStatus.FINISHED_ABORTED)
        return [
            StepOutput(request_id, "", self._end(request_id, "error", error=error.message))
            for request_id, error in failures.items()
        ]

    def _end(
        self,
        request_id: str,
        finish_reason: str,
        *,
        stop_reason: int | str | None = None,
        error: str | None = None,
    ) -> RequestOutput:
        live = self._live.pop(request_id)
        self.runner.remove_sampling(request_id)
        if finish_reason in ("abort", "error"):
            live.detokenizer.finish()
        completion = CompletionOutput(
            index=0,
            text=live.detokenizer.text,
            token_ids=tuple(live.token_ids),
            finish_reason=finish_reason,
            stop_reason=stop_reason,
        )
        return RequestOutput(
            request_id=request_id,
            prompt_token_ids=live.prompt_token_ids,
            outputs=(completion,),
            num_cached_tokens=live.num_cached_tokens,
            times=RequestTimes(live.arrival, tuple(live.token_times)),
            error=error,
        )

    def _check_token_ids(self, token_ids: Sequence[int]) -> None:
        vocab_size = self.artifact.manifest.model.vocab_size
        for token_id in token_ids:
            if not 0 <= token_id < vocab_size:
                raise RequestError(
                    f"token id {token_id} is outside the vocabulary (0 to {vocab_size - 1})",
                    code="invalid_token_id",
                )
