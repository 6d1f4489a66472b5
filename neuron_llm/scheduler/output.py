"""What passes between the scheduler, the runner and the engine; plain data, made anew each step.

Whoever receives it only reads it: its parts may be shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import KW_ONLY, dataclass

from neuron_llm.scheduler.request import FinishReason


@dataclass(slots=True, kw_only=True)
class NewRequestData:
    """A request the runner has not seen before.

    Attributes:
        req_id: the request's id; one finished in the same output may have had the same.
        prompt_token_ids: the whole prompt, also where it is computed in chunks.
        block_ids: its block table so far, prefix hits first.
        num_computed_tokens: tokens found in the prefix cache; the chunk starts here.
    """

    req_id: str
    prompt_token_ids: Sequence[int]
    block_ids: list[int]
    num_computed_tokens: int


@dataclass(slots=True)
class CachedRequestData:
    """Requests the runner knows, as a difference to what it knows; the lists run in parallel.

    Attributes:
        req_ids: the requests, in batch order.
        new_block_ids: blocks to append to each one's table; often none, and then the same list.
        num_computed_tokens: where each one's tokens of this step start.
        num_output_tokens: output tokens of each before this step, those still in flight included.
    """

    req_ids: list[str]
    new_block_ids: list[list[int]]
    num_computed_tokens: list[int]
    num_output_tokens: list[int]

    @property
    def num_reqs(self) -> int:
        """How many requests there are."""
        return len(self.req_ids)


@dataclass(slots=True, kw_only=True)
class SchedulerOutput:
    """One step. With the outputs before it, this is all that a runner needs.

    Attributes:
        scheduled_new_reqs: requests in full that run for the first time.
        scheduled_cached_reqs: requests that ran before.
        num_scheduled_tokens: real tokens of each request; the order is the batch order.
        total_num_scheduled_tokens: their sum; 0 means that there is nothing to run.
        finished_req_ids: requests that the runner can forget before it looks at the others.
        num_scheduled_tokens_padded: tensor size of each request along the token axis, None where
            the scheduler knows no buckets. Never used for accounting: counters move by real tokens.
            A dict of its own also where nothing is padded.
    """

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    finished_req_ids: Set[str]
    num_scheduled_tokens_padded: dict[str, int] | None = None


@dataclass(slots=True)
class ModelRunnerOutput:
    """What a step sampled; the lists run in parallel.

    Attributes:
        req_ids: the requests of the step, in any order.
        sampled_token_ids: the tokens of each; empty for a prefill chunk that is not the last.
    """

    req_ids: list[str]
    sampled_token_ids: list[list[int]]

    def in_order(self, req_ids: Iterable[str]) -> list[list[int]]:
        """Return the tokens of the requests in the order of `req_ids`."""
        sampled = dict(zip(self.req_ids, self.sampled_token_ids, strict=True))
        return [sampled[req_id] for req_id in req_ids]


@dataclass(slots=True)
class EngineCoreOutput:
    """New tokens of one request.

    Attributes:
        request_id: the request.
        new_token_ids: at least one; nothing after the token that ended the request.
        num_cached_tokens: prompt tokens that came from the prefix cache.
        finish_reason: None while the request goes on.
        stop_reason: the stop token that ended it; None for EOS and for length.
    """

    request_id: str
    new_token_ids: list[int]
    num_cached_tokens: int = 0
    _: KW_ONLY
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
