"""A workload's requests on their way into a scheduler, each when it comes. Knows no torch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.report.workload.workload import Workload
from neuron_llm.scheduler import NeuronScheduler, Request, SchedulerConfig
from neuron_llm.scheduler.policy.admission import check_length

END_TOKEN_ID = -1
"""Ends a request that asked for more tokens than it generates; no prompt has it."""

# The scheduler takes one prompt a step and looks at the next; nobody overtakes those. The others
# wait outside, where they take no memory for their tokens.
_MAX_QUEUED = 2


@dataclass(frozen=True)
class RefusedRequest:
    """A request that could never run.

    Attributes:
        line: where it stands in the trace, from 1.
        prompt_tokens: of its prompt.
        code: a stable word for the reason, `prompt_too_long` or `kv_too_small`.
        reason: for people.
    """

    line: int
    prompt_tokens: int
    code: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the request as JSON keys and values."""
        return dict(vars(self))


@dataclass(eq=False)
class LiveRequest:
    """A request that a scheduler has.

    Attributes:
        traced: the request of the trace.
        request: the scheduler's.
        output_tokens: how many it generates, unless its length ends it before.
    """

    traced: TraceRequest
    request: Request
    output_tokens: int


class Arrivals:
    """Queues a workload's requests at a scheduler.

    Args:
        workload: the requests.
        config: the scheduler's limits.

    Attributes:
        refused: those that could never run, by arrival.
    """

    def __init__(self, workload: Workload, config: SchedulerConfig) -> None:
        self._workload = workload
        self._tokens = TraceTokens(workload.trace)
        self._pending: deque[TraceRequest] = deque()
        self._arrived: deque[TraceRequest] = deque()
        self.refused: list[RefusedRequest] = []
        self._num_given = 0
        for request in workload.trace.requests:
            refused = self._refusal(request, config)
            if refused is None:
                self._pending.append(request)
            else:
                self.refused.append(refused)

    @property
    def next_arrival_s(self) -> float | None:
        """When the next request comes; None if all have come."""
        return self._pending[0].arrival_s if self._pending else None

    @property
    def num_outside(self) -> int:
        """Requests that have come and that the scheduler does not have yet."""
        return len(self._arrived)

    def queue(self, scheduler: NeuronScheduler, now_s: float) -> list[LiveRequest]:
        """Give the scheduler the requests that have come; return them."""
        pending, arrived = self._pending, self._arrived
        while pending and pending[0].arrival_s <= now_s:
            arrived.append(pending.popleft())
        queued = []
        while arrived and len(scheduler.waiting) < _MAX_QUEUED:
            live = self._live(arrived.popleft())
            scheduler.add_request(live.request)
            queued.append(live)
        return queued

    def _live(self, traced: TraceRequest) -> LiveRequest:
        # No line: several requests may come from the same one.
        self._num_given += 1
        request = Request(
            str(self._num_given),
            self._tokens.prompt(traced),
            self._workload.asked_tokens(traced),
            eos_token_ids=frozenset({END_TOKEN_ID}),
            arrival_time=traced.arrival_s,
        )
        return LiveRequest(traced, request, self._workload.output_tokens(traced))

    def _refusal(self, traced: TraceRequest, config: SchedulerConfig) -> RefusedRequest | None:
        """Return why a request could never run, None if it could."""
        # One so long is not made up: it may be longer than memory.
        length = min(traced.prompt_tokens, config.max_model_len)
        try:
            check_length(Request("", [0] * length, self._workload.asked_tokens(traced)), config)
        except RequestError as error:
            return RefusedRequest(traced.line, traced.prompt_tokens, error.code, error.message)
        return None


class TraceTokens:
    """Makes prompts up, of which a trace says only which begin alike.

    A hash id becomes as many ids as a block of the trace has tokens, and no other id becomes any of
    those. So prompts have equal ids as far as their hash ids are equal from the first, whatever the
    blocks of the KV cache are; all else differs. Where blocks are smaller than those of the trace,
    what two prompts share of a trace's block is not known, and taken for nothing.

    Args:
        trace: whose requests they are of.

    Attributes:
        are_shared: whether any prompts can be known to begin alike.
    """

    def __init__(self, trace: Trace) -> None:
        self.are_shared = trace.block_size is not None
        self._block_size = trace.block_size or 1
        self._first_ids: dict[int, int] = {}
        self._next_id = 0

    def prompt(self, request: TraceRequest) -> list[int]:
        """Return the token ids of a request's prompt."""
        if not self.are_shared:
            return [0] * request.prompt_tokens
        token_ids: list[int] = []
        for hash_id in request.hash_ids:
            first = self._first_ids.get(hash_id)
            if first is None:
                first = self._first_ids[hash_id] = self._take(self._block_size)
            token_ids += range(first, first + self._block_size)
        del token_ids[request.prompt_tokens :]
        num_left = request.prompt_tokens - len(token_ids)
        first = self._take(num_left)
        return [*token_ids, *range(first, first + num_left)]

    def _take(self, num_ids: int) -> int:
        first = self._next_id
        self._next_id += num_ids
        return first
