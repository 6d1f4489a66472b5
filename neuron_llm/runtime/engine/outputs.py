"""What generation returns; vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """When things happened to a request, in seconds on the engine's clock.

    Attributes:
        arrival: it was added.
        tokens: one entry per output token, of all completions in the order in which they came.
        first_scheduled: the first step that computed any of it began; None if none did.
    """

    arrival: float
    tokens: tuple[float, ...]
    first_scheduled: float | None = None


@dataclass(frozen=True, slots=True)
class Logprob:
    """The log probability of a token at one position of a text.

    Attributes:
        logprob: the natural logarithm.
        rank: 1 for the most likely token.
        decoded_token: the text that the token adds.
    """

    logprob: float
    rank: int
    decoded_token: str


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One completion of a prompt.

    Attributes:
        index: which of the prompt's completions.
        text: without the token or string that ended it, unless asked for.
        token_ids: every sampled token, the one that ended it included.
        finish_reason: `stop`, `length`, `abort` or `error`.
        stop_reason: the stop token or stop string that ended it; None for end of sequence.
        logprobs: for each token, by token id: its own log probability first, then those of the most
            likely ones in order; None if not asked for.
        cumulative_logprob: the sum of the tokens' own; None if not asked for.
        token_times: when each token came, in seconds on the engine's clock.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: int | str | None
    logprobs: tuple[Mapping[int, Logprob], ...] | None = None
    cumulative_logprob: float | None = None
    token_times: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """A request that has ended.

    Attributes:
        request_id: the request.
        prompt_token_ids: its prompt.
        outputs: its completions, by index.
        num_cached_tokens: prompt tokens that the first of them found in the prefix cache.
        times: when its tokens came.
        error: why it failed, for the finish reason `error`.
        prompt_logprobs: None for the first token of the prompt, then as in `CompletionOutput`; None
            if not asked for.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int
    times: RequestTimes
    error: str | None = None
    prompt_logprobs: tuple[Mapping[int, Logprob] | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step gave one completion of a request.

    Attributes:
        request_id: the request.
        new_text: what the step added to the text; joined, the pieces are the whole text.
        result: the whole of the request, once all its completions have ended.
        index: which of the request's completions.
    """

    request_id: str
    new_text: str
    result: RequestOutput | None = None
    index: int = 0
