"""A request from its arrival to its result: its tokens, its text, its times."""

from __future__ import annotations

from neuron_llm.runtime.engine.outputs import CompletionOutput, RequestOutput, RequestTimes
from neuron_llm.runtime.engine.request_logprobs import RequestLogprobs
from neuron_llm.runtime.engine.step import SampledStep
from neuron_llm.runtime.text.detokenizer import IncrementalDetokenizer
from neuron_llm.scheduler import EngineCoreOutput, FinishReason, Request


class LiveRequest:
    """A request that has not finished.

    Args:
        request: its id, its prompt and its arrival.
        detokenizer: turns its tokens into text.
        logprobs: collects its log probabilities.
    """

    def __init__(
        self, request: Request, detokenizer: IncrementalDetokenizer, logprobs: RequestLogprobs
    ) -> None:
        self._request_id = request.request_id
        self._prompt_token_ids = tuple(request.prompt_token_ids)
        self._detokenizer = detokenizer
        self._arrival = request.arrival_time
        self._logprobs = logprobs
        self._token_ids: list[int] = []
        self._token_times: list[float] = []
        self._num_cached_tokens = 0
        self._first_scheduled: float | None = None

    @property
    def has_tokens(self) -> bool:
        """Whether it has any output token yet."""
        return bool(self._token_ids)

    @property
    def stop_string(self) -> str | None:
        """The stop string that its text has come to, which ends it."""
        return self._detokenizer.stop_reason

    def start(self, at: float) -> float:
        """Take in when the request's first step began; return the seconds since it came."""
        self._first_scheduled = at
        return at - self._arrival

    def add(self, output: EngineCoreOutput, sampled: SampledStep, at: float) -> str:
        """Take in new tokens of a step and return the text that they add."""
        self._logprobs.add_step(output.request_id, sampled)
        self._num_cached_tokens = output.num_cached_tokens
        self._token_ids.extend(output.new_token_ids)
        self._token_times.extend([at] * len(output.new_token_ids))
        detokenizer, reason = self._detokenizer, output.finish_reason
        *others, last = output.new_token_ids
        new_text = "".join(detokenizer.push(token_id) for token_id in others)
        if reason is FinishReason.STOP:
            return new_text + detokenizer.finish(ending_token_id=last)
        new_text += detokenizer.push(last)
        if reason is FinishReason.LENGTH:
            new_text += detokenizer.cut()
        return new_text

    def end(
        self,
        finish_reason: str,
        *,
        stop_reason: int | str | None = None,
        error: str | None = None,
    ) -> RequestOutput:
        """Return the whole of it."""
        if finish_reason in ("abort", "error"):
            self._detokenizer.cut()
        times = RequestTimes(self._arrival, tuple(self._token_times), self._first_scheduled)
        completion = CompletionOutput(
            index=0,
            text=self._detokenizer.text,
            token_ids=tuple(self._token_ids),
            finish_reason=finish_reason,
            stop_reason=stop_reason,
            logprobs=self._logprobs.of_output,
            cumulative_logprob=self._logprobs.cumulative,
            token_times=times.tokens,
        )
        return RequestOutput(
            request_id=self._request_id,
            prompt_token_ids=self._prompt_token_ids,
            outputs=(completion,),
            num_cached_tokens=self._num_cached_tokens,
            times=times,
            error=error,
            prompt_logprobs=self._logprobs.of_prompt,
        )
