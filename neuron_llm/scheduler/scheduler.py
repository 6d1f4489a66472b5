"""The base scheduler: vLLM V1's semantics on plain integers.

There is no prefill phase and no decode phase here. Each request has `num_tokens` and
`num_computed_tokens`, and every step lets the second catch up with the first, as far as the token
budget and the KV cache allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from neuron_llm.errors import OutOfBlocksError, RequestError
from neuron_llm.scheduler.config import SchedulerConfig
from neuron_llm.scheduler.kv_cache_manager import KVCacheManager
from neuron_llm.scheduler.output import (
    CachedRequestData,
    EngineCoreOutput,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
)
from neuron_llm.scheduler.policy.admission import check_request
from neuron_llm.scheduler.request import RUNNING, Request, RequestStatus
from neuron_llm.scheduler.stop import append_until_stop, check_stop

# Not the scheduler's own set, which goes on to collect: an output does not change.
_NONE_FINISHED: frozenset[str] = frozenset()


class Scheduler:
    """Decides which tokens of which requests each step computes; first come, first served.

    Call `schedule()`, run the step, hand the result to `update_from_output()`. Steps may overlap:
    their outputs must arrive in the order in which they were scheduled.

    Args:
        config: the limits.

    Attributes:
        waiting: requests that hold no blocks, in order of arrival.
        running: requests that hold blocks, in order of admission.
        requests: every unfinished request by its id.
        finished_req_ids: requests that the runner has not been told to forget yet.
        max_num_running_reqs: how many of `running` there may be.
        max_num_scheduled_tokens: token budget of a step.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.kv_cache_manager = KVCacheManager(
            config.num_blocks,
            config.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
        )
        self.max_num_running_reqs = config.max_num_seqs
        self.max_num_scheduled_tokens = config.max_num_batched_tokens
        self.max_model_len = config.max_model_len
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.requests: dict[str, Request] = {}
        self.finished_req_ids: set[str] = set()
        # The requests themselves, not their ids: a request may finish, and its id come back, while
        # a step is in flight.
        self._in_flight: deque[tuple[SchedulerOutput, list[Request]]] = deque()

    def add_request(self, request: Request) -> None:
        """Queue a new request.

        Raises:
            RequestError: it could never be scheduled, or an unfinished request has its id; nothing
                is queued then. Codes: `empty_prompt`, `prompt_too_long`, `duplicate_request_id`,
                `kv_too_small`, `invalid_sampling`.
        """
        check_request(request, self.config)
        if request.request_id in self.requests:
            raise RequestError(
                f"an unfinished request has the id `{request.request_id}`",
                code="duplicate_request_id",
                hint="give every request an id of its own",
            )
        request.set_max_model_len(self.max_model_len)
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self) -> SchedulerOutput:
        """Plan the next step and count its tokens as computed.

        Raises:
            OutOfBlocksError: a running request cannot grow. Blocks are never taken back from
                another one; admit fewer requests.
        """
        output = SchedulerOutput(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=CachedRequestData([], [], [], []),
            num_scheduled_tokens={},
            total_num_scheduled_tokens=0,
            finished_req_ids=self.finished_req_ids or _NONE_FINISHED,
        )
        self._schedule_running(output)
        if self.waiting:
            self._schedule_waiting(output)
        self._check_phases(output)
        if output.num_scheduled_tokens:
            self._update_after_schedule(output)
        if self.finished_req_ids:
            self.finished_req_ids = set()
        return output

    def update_from_output(
        self, scheduler_output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> list[EngineCoreOutput]:
        """Take in what the oldest step in flight sampled; return the new tokens of each request.

        A token for a request that has ended in the meantime is dropped, and so is everything after
        the token that ends one.
        """
        if not scheduler_output.num_scheduled_tokens:
            return []
        oldest_output, requests = self._in_flight.popleft()
        assert oldest_output is scheduler_output, "outputs out of order"
        sampled_token_ids = runner_output.sampled_token_ids
        # With a new request in the step, or in another order, they differ.
        if runner_output.req_ids != scheduler_output.scheduled_cached_reqs.req_ids:
            sampled_token_ids = runner_output.in_order(scheduler_output.num_scheduled_tokens)
        assert len(sampled_token_ids) == len(requests), "outputs are missing"
        outputs = []
        is_any_finished = False
        for index, request in enumerate(requests):
            token_ids = sampled_token_ids[index]
            if not token_ids or request.status is not RUNNING:
                continue
            if len(token_ids) > 1:
                token_ids = append_until_stop(request, token_ids)
            elif request.append_output_token_id(token_ids[0]):
                check_stop(request)
            if request.num_output_placeholders:
                self._fill_placeholders(request, len(token_ids))
            output = EngineCoreOutput(request.request_id, token_ids, request.num_cached_tokens)
            outputs.append(output)
            if request.status is not RUNNING:
                output.finish_reason = request.finish_reason
                output.stop_reason = request.stop_reason
                self._free_request(request)
                is_any_finished = True
        if is_any_finished:
            self.running = [r for r in self.running if r.status is RUNNING]
        return outputs

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, status: RequestStatus
    ) -> list[str]:
        """End requests from outside, such as by an abort.

        Args:
            request_ids: one id, several, or None for every request; unknown ids are ignored, as
                they may have finished a moment ago.
            status: a finished one.

        Returns:
            The ids of the requests that were ended.
        """
        assert status.is_finished
        if request_ids is None:
            request_ids = list(self.requests)
        elif isinstance(request_ids, str):
            request_ids = [request_ids]
        ended = [self.requests[i] for i in dict.fromkeys(request_ids) if i in self.requests]
        any_waiting = any(request.status is RequestStatus.WAITING for request in ended)
        for request in ended:
            request.status = status
            self._free_request(request)
        if any_waiting:
            self.waiting = deque(r for r in self.waiting if not r.status.is_finished)
        self.running = [r for r in self.running if not r.status.is_finished]
        return [request.request_id for request in ended]

    def has_unfinished_requests(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self.requests)

    def reset_prefix_cache(self) -> bool:
        """Forget all published blocks if no request holds any; return whether that was so."""
        return self.kv_cache_manager.block_pool.reset_prefix_cache()

    def _grow(self, request: Request, num_new_tokens: int) -> list[int]:
        """Return the new blocks of a running request."""
        block_ids = self.kv_cache_manager.allocate_slots(request, num_new_tokens)
        if block_ids is None:
            raise OutOfBlocksError(
                f"request `{request.request_id}` cannot grow by {num_new_tokens} tokens: "
                f"{self.kv_cache_manager.num_free_blocks} KV blocks are free",
                hint="lower `max_num_seqs` or give the KV cache more memory",
            )
        return block_ids

    def _schedule_running(self, output: SchedulerOutput) -> None:
        """Let running requests go on in order, as far as the budget goes."""
        cached, num_scheduled_tokens = output.scheduled_cached_reqs, output.num_scheduled_tokens
        token_budget = self.max_num_scheduled_tokens
        no_block_ids: list[int] = []
        for request in self.running:
            # Known tokens and those in flight; all but the new ones are computed.
            num_tokens = request.num_tokens + request.num_output_placeholders
            num_computed_tokens = request.num_computed_tokens
            num_new_tokens = num_tokens - num_computed_tokens
            if num_new_tokens > token_budget:
                num_new_tokens = token_budget
            if num_new_tokens <= 0:
                continue
            block_ids = no_block_ids
            if num_tokens >= request.num_settled_tokens:
                if num_tokens >= request.max_num_tokens:
                    continue  # It ends by its length, whatever the tokens in flight turn out to be.
                block_ids = self._grow(request, num_new_tokens)
            token_budget -= num_new_tokens
            req_id = request.request_id
            num_scheduled_tokens[req_id] = num_new_tokens
            cached.req_ids.append(req_id)
            cached.new_block_ids.append(block_ids)
            cached.num_computed_tokens.append(num_computed_tokens)
            cached.num_output_tokens.append(num_tokens - request.num_prompt_tokens)
        output.total_num_scheduled_tokens = self.max_num_scheduled_tokens - token_budget

    def _schedule_waiting(self, output: SchedulerOutput) -> None:
        """Start waiting requests in order, as far as the budget goes."""
        token_budget = self.max_num_scheduled_tokens - output.total_num_scheduled_tokens
        kv = self.kv_cache_manager
        while self.waiting and token_budget > 0 and len(self.running) < self.max_num_running_reqs:
            request = self.waiting[0]
            hits = kv.get_computed_blocks(request)
            if not kv.can_hold_all_tokens(request, hits):
                break  # The head waits for blocks, and nobody overtakes it.
            num_cached_tokens = len(hits) * kv.block_size
            num_new_tokens = min(request.num_tokens - num_cached_tokens, token_budget)
            new_block_ids = kv.allocate_slots(request, num_new_tokens, hits)
            assert new_block_ids is not None, "a chunk needs no more blocks than the whole prompt"
            self.running.append(self.waiting.popleft())
            request.status = RUNNING
            request.num_computed_tokens = request.num_cached_tokens = num_cached_tokens
            token_budget -= num_new_tokens
            output.num_scheduled_tokens[request.request_id] = num_new_tokens
            output.scheduled_new_reqs.append(
                NewRequestData(
                    req_id=request.request_id,
                    prompt_token_ids=request.prompt_token_ids,
                    block_ids=[*hits, *new_block_ids],
                    num_computed_tokens=num_cached_tokens,
                )
            )
        output.total_num_scheduled_tokens = self.max_num_scheduled_tokens - token_budget
        assert len(self.running) <= self.max_num_running_reqs

    def _check_phases(self, scheduler_output: SchedulerOutput) -> None:
        """Refuse a step while its counters can still be trusted; here, any batch will do."""

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Move the counters on; until here, the output holds the values from before the step."""
        num_scheduled_tokens = scheduler_output.num_scheduled_tokens
        scheduled = [r for r in self.running if r.request_id in num_scheduled_tokens]
        for request in scheduled:
            request.num_computed_tokens += num_scheduled_tokens[request.request_id]
        self._in_flight.append((scheduler_output, scheduled))

    def _fill_placeholders(self, request: Request, num_tokens: int) -> None:
        """Count tokens that were in flight as known, and publish the block that they fill."""
        request.num_output_placeholders -= num_tokens
        # The block had no hash when it was allocated, since its last token was still in flight.
        num_known_tokens = request.num_computed_tokens - request.num_output_placeholders
        if num_known_tokens % self.config.block_size == 0:
            self.kv_cache_manager.cache_blocks(request, num_known_tokens)

    def _free_request(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        self.finished_req_ids.add(request.request_id)
        del self.requests[request.request_id]
