"""What generation returns; vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """When things happened to a request, in seconds on the engine's clock.

    Attributes:
        arrival: it was added.
        tokens: one entry per output token.
    """

    arrival: float
    tokens: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One completion of a prompt.

    Attributes:
        index: which of the prompt's completions.
        text: without the token or string that ended it, unless asked for.
        token_ids: every sampled token, the one that ended it included.
        finish_reason: `stop`, `length`, `abort` or `error`.
        stop_reason: the stop token or stop string that ended it; None for end of sequence.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: int | str | None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A request that has ended.

    Attributes:
        request_id: the request.
        prompt_token_ids: its prompt.
        outputs: one completion.
        num_cached_tokens: prompt tokens found in the prefix cache.
        times: when its tokens came.
        error: why it failed, for the finish reason `error`.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int
    times: RequestTimes
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step gave one request.

    Attributes:
        request_id: the request.
        new_text: what the step added to the text; joined, the pieces are the whole text.
        result: the whole of it, once it has ended.
    """

    request_id: str
    new_text: str
    result: RequestOutput | None = None
