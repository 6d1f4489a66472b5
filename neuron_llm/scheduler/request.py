"""One request as the scheduler sees it: token ids, limits and counters, no text and no tensor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum, StrEnum

from neuron_llm.scheduler.block_pool import BlockHash


class RequestStatus(IntEnum):
    """Where a request stands. The order matters: everything after RUNNING is finished."""

    WAITING = 0
    RUNNING = 1
    FINISHED_STOPPED = 2
    FINISHED_LENGTH_CAPPED = 3
    FINISHED_ABORTED = 4

    @property
    def is_finished(self) -> bool:
        """Whether the request will never be scheduled again."""
        return self > RequestStatus.RUNNING


RUNNING = RequestStatus.RUNNING
"""Looked up once: a member of an enum takes longer to find than most of what a step does."""


class FinishReason(StrEnum):
    """Why a request ended, as it is reported to the user."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
}


@dataclass(eq=False, slots=True)
class Request:
    """One prompt and what has become of it.

    Attributes:
        request_id: unique among the unfinished requests of a scheduler.
        prompt_token_ids: the prompt, not changed by anyone.
        max_tokens: most output tokens, >= 1.
        min_tokens: EOS and stop tokens do not end the request before this many output tokens.
        eos_token_ids: each ends the request with no stop reason.
        stop_token_ids: each ends the request with itself as the stop reason.
        ignore_eos: let EOS tokens pass.
        cache_salt: requests share prefix blocks only with requests of the same salt.
        arrival_time: seconds on the caller's clock; carried, not read.
        skip_reading_prefix_cache: compute the whole prompt; its blocks may be read by others.
        max_shared_tokens: only blocks that hold some of its first so many tokens, and no other
            token, may be read by others.
        ending_token_ids: the EOS and stop tokens that count.
        max_num_tokens: with this many tokens it ends by length; set by `set_max_model_len`.
        num_tokens: prompt tokens plus output tokens known so far.
        num_computed_tokens: tokens whose KV is in the cache once the steps in flight have run.
        num_output_placeholders: tokens that steps in flight will sample (async scheduling only).
        num_cached_tokens: prompt tokens that came from the prefix cache.
        num_settled_tokens: until it has this many tokens, it needs no block, fills none and is not
            at its end; kept by the KV cache manager.
        block_hashes: one per full block of `all_token_ids`, as far as they have been needed.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    _: KW_ONLY
    min_tokens: int = 0
    eos_token_ids: frozenset[int] = frozenset()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    cache_salt: str | None = None
    arrival_time: float = 0.0
    skip_reading_prefix_cache: bool = False
    max_shared_tokens: int = sys.maxsize

    status: RequestStatus = field(init=False, default=RequestStatus.WAITING)
    stop_reason: int | None = field(init=False, default=None)
    ending_token_ids: frozenset[int] = field(init=False, repr=False)
    max_num_tokens: int = field(init=False, default=0)
    num_prompt_tokens: int = field(init=False)
    num_tokens: int = field(init=False)
    num_computed_tokens: int = field(init=False, default=0)
    num_output_placeholders: int = field(init=False, default=0)
    num_cached_tokens: int = field(init=False, default=0)
    num_settled_tokens: int = field(init=False, default=0)
    block_hashes: list[BlockHash] = field(init=False, default_factory=list, repr=False)
    _all_token_ids: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start with the prompt as all there is."""
        eos_token_ids = frozenset[int]() if self.ignore_eos else self.eos_token_ids
        self.ending_token_ids = eos_token_ids | self.stop_token_ids
        self._all_token_ids = list(self.prompt_token_ids)
        # Plain numbers, not properties: the scheduler reads them several times per request and
        # step.
        self.num_prompt_tokens = self.num_tokens = len(self._all_token_ids)

    @property
    def all_token_ids(self) -> Sequence[int]:
        """Prompt and output tokens; a view, only `append_output_token_id` adds to it."""
        return self._all_token_ids

    @property
    def output_token_ids(self) -> Sequence[int]:
        """A copy of the tokens sampled so far."""
        return self._all_token_ids[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        """Tokens sampled so far."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the request ended, None while it has not."""
        return _FINISH_REASONS.get(self.status)

    def set_max_model_len(self, max_model_len: int) -> None:
        """Fix the length at which the request ends, once its limits are known to be valid."""
        self.max_num_tokens = min(self.num_prompt_tokens + self.max_tokens, max_model_len)

    def append_output_token_id(self, token_id: int) -> bool:
        """Add one sampled token; return whether it may end the request."""
        self._all_token_ids.append(token_id)
        self.num_tokens = num_tokens = self.num_tokens + 1
        return num_tokens >= self.max_num_tokens or token_id in self.ending_token_ids
