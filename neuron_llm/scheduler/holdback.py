"""The holdback logic: what a scheduler may see, so that its step holds one phase only.

A device with static graphs runs one prefill chunk or a batch of decodes, never both, and cannot
preempt. Nothing of that is known to the scheduler underneath. Around each of its steps the mixin
hides the requests that must not be in it, and puts them back in order afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import Any

from neuron_llm.errors import NoProgressError
from neuron_llm.scheduler.admission import KVAdmission, KVPort
from neuron_llm.scheduler.buckets import get_bucket_for_count
from neuron_llm.scheduler.config import SchedulerConfig
from neuron_llm.scheduler.output import CachedRequestData, SchedulerOutput
from neuron_llm.scheduler.request import Request
from neuron_llm.scheduler.stats import HoldReason, SchedulerState, SchedulerStats


class HoldbackMixin(ABC):
    """Holdback queue, phase separation, KV admission and padding around any scheduler.

    An adapter calls `_init_holdback()` when the scheduler underneath is complete, implements the
    two abstract methods, and calls `_check_phases()` on each output before the counters move on.

    Attributes:
        holdback_queue: waiting requests hidden from a step while it is scheduled.
        max_prefills_per_batch: prefill graphs take one request.
        total_scheduled_tokens: real tokens of all steps so far.
        total_padding_tokens: tokens added to prefill chunks to fill their buckets.
    """

    waiting: deque[Request]
    running: list[Request]
    requests: dict[str, Request]
    max_num_running_reqs: int
    max_num_scheduled_tokens: int

    # How many tokens of a request must be computed before it decodes.
    _num_prefill_tokens: Callable[[Request], int] = attrgetter("num_prompt_tokens")

    @abstractmethod
    def _call_base_schedule(self) -> SchedulerOutput:
        """Run the step of the scheduler underneath, on the queues as they are."""

    @abstractmethod
    def _has_steps_in_flight(self) -> bool:
        """Whether the output of an earlier step is still to come."""

    def _init_holdback(self, config: SchedulerConfig, kv: KVPort) -> None:
        self.max_num_seqs = config.max_num_seqs
        self.max_prefills_per_batch = 1
        self.max_consecutive_prefills = config.max_consecutive_prefills
        self.num_batched_tokens_buckets = config.num_batched_tokens_buckets
        # Of the scheduler's own kind of queue, since the two trade places.
        self.holdback_queue: deque[Request] = type(self.waiting)()
        self.total_scheduled_tokens = 0
        self.total_padding_tokens = 0
        self._num_padded_tokens = 0
        self._stats: tuple[Any, ...] | None = None
        self._kv = kv
        self._kv_admission = KVAdmission(config, kv)
        self._num_consecutive_prefills = 0
        self._hold_reason: HoldReason | None = None
        self._state = SchedulerState.IDLE

    @property
    def state(self) -> SchedulerState:
        """The phase of the last step that scheduled anything; IDLE when the queues are empty."""
        return self._state

    @property
    def last_stats(self) -> SchedulerStats | None:
        """What the last step did, None before the first; made when it is asked for."""
        return SchedulerStats(*self._stats) if self._stats else None

    @property
    def at_capacity(self) -> bool:
        """Whether the running requests, hidden ones included, take all `max_num_seqs` slots."""
        return len(self.running) >= self.max_num_seqs

    @property
    def has_prefill_in_running(self) -> bool:
        """Whether a running request still has prompt tokens to compute.

        Only the newest can: no request is admitted while another one's prompt is being computed.
        """
        return bool(self.running) and self._is_prefill_request(self.running[-1])

    @property
    def _max_kv_concurrent(self) -> int:
        """How many requests of `max_model_len` fit into the KV cache together."""
        return self._kv_admission.max_concurrent

    def schedule(self) -> SchedulerOutput:
        """Plan the next step: one prefill chunk of one request, or a batch of decodes.

        Raises:
            NoProgressError: requests are left, nothing is in flight, and nothing can be scheduled.
        """
        # 1. Hide the whole waiting queue. The two queues trade places, whatever their length.
        self.waiting, self.holdback_queue = self.holdback_queue, self.waiting
        limits = self.max_num_running_reqs, self.max_num_scheduled_tokens
        running_holdback: list[Request] = []
        prefill_holdback: list[Request] = []
        try:
            # 2. Give back its head if it may start now; nobody overtakes it.
            self._admit_from_holdback()
            # 3. One phase per step: hide the running requests of the other one.
            running_holdback, self.running, prefill_holdback = self._separate_phases()
            self._limit_step(len(running_holdback) + len(prefill_holdback))
            # 4. The scheduler underneath does its work on what is left.
            scheduler_output = self._call_base_schedule()
        finally:
            # 5. Restore queues and limits, also when it failed; `running` in admission order.
            if running_holdback or prefill_holdback:
                self.running = [*running_holdback, *self.running, *prefill_holdback]
            self._restore_waiting()
            self.max_num_running_reqs, self.max_num_scheduled_tokens = limits
        # 6. Pad the tensor size of a prefill; the token counts stay what they are.
        is_prefill = self._is_prefill_step(scheduler_output)
        self._apply_padding_and_log_stats(scheduler_output, is_prefill)
        # 7. `_check_phases()` has seen the output before the counters moved on. Was there any?
        self._check_progress(scheduler_output)
        # 8. Name the phase of the step.
        self._update_state(scheduler_output, is_prefill)
        self._record_stats(scheduler_output, len(running_holdback) + len(prefill_holdback))
        return scheduler_output

    def can_schedule(self, request: Request) -> bool:
        """Whether a waiting request may start in this step; `last_stats` says why one may not."""
        self._hold_reason = self._find_hold_reason(request)
        return self._hold_reason is None

    def _find_hold_reason(self, request: Request) -> HoldReason | None:
        if self.at_capacity:
            return HoldReason.SLOTS
        if self.has_prefill_in_running:
            return HoldReason.PREFILL_RUNNING
        if len(self.waiting) >= self.max_prefills_per_batch:
            return HoldReason.PREFILL_BATCH
        if self._is_decode_due():
            return HoldReason.STREAK
        if not self._kv_admission.has_room(request, self._block_holders(request)):
            return HoldReason.KV
        return None

    def _is_prefill_request(self, request: Request) -> bool:
        return request.num_computed_tokens < self._num_prefill_tokens(request)

    def _block_holders(self, candidate: Request) -> list[Request]:
        """Return the requests other than the candidate to which blocks are promised."""
        return self.running

    def _is_any_admitted(self) -> bool:
        """Whether a waiting request is shown to the scheduler underneath."""
        return bool(self.waiting)

    def _is_decode_due(self) -> bool:
        """Whether decodes have waited for as many prefill steps in a row as they may."""
        return (
            self.max_consecutive_prefills is not None
            and self._num_consecutive_prefills >= self.max_consecutive_prefills
            and len(self.running) > self.has_prefill_in_running
        )

    def _admit_from_holdback(self) -> None:
        self._hold_reason = None
        while self.holdback_queue and self.can_schedule(self.holdback_queue[0]):
            self.waiting.append(self.holdback_queue.popleft())

    def _separate_phases(self) -> tuple[list[Request], list[Request], list[Request]]:
        """Split `running` into hidden decodes, visible requests and a hidden prefill."""
        if self.has_prefill_in_running:
            decodes, prefill = self.running[:-1], self.running[-1:]
            return ([], decodes, prefill) if self._is_decode_due() else (decodes, prefill, [])
        if self._is_any_admitted():
            return self.running, [], []
        return [], self.running, []

    def _limit_step(self, num_hidden: int) -> None:
        """Count hidden requests against the slots, and rows of decodes not against the budget."""
        self.max_num_running_reqs -= num_hidden
        # The budget is the largest prefill graph; how many rows decode, `max_num_seqs` says. Only
        # decodes are ever shown by the dozen.
        self.max_num_scheduled_tokens = max(self.max_num_scheduled_tokens, len(self.running))

    def _restore_waiting(self) -> None:
        while self.waiting:
            self.holdback_queue.appendleft(self.waiting.pop())
        self.waiting, self.holdback_queue = self.holdback_queue, self.waiting

    def _apply_padding_and_log_stats(
        self, scheduler_output: SchedulerOutput, is_prefill: bool
    ) -> None:
        padded = scheduler_output.num_scheduled_tokens.copy()
        num_tokens = self._num_padded_tokens = scheduler_output.total_num_scheduled_tokens
        if is_prefill:
            padded = {i: self._calculate_padded_count(n) for i, n in padded.items()}
            self._num_padded_tokens = sum(padded.values())
        scheduler_output.num_scheduled_tokens_padded = padded
        self.total_scheduled_tokens += num_tokens
        self.total_padding_tokens += self._num_padded_tokens - num_tokens

    def _calculate_padded_count(self, token_count: int) -> int:
        """Return the smallest bucket that holds the chunk; no tokens need none.

        Raises:
            NoBucketError: none does.
        """
        if token_count == 0:
            return 0
        return get_bucket_for_count(token_count, self.num_batched_tokens_buckets)

    def _check_phases(self, scheduler_output: SchedulerOutput) -> None:
        """Refuse a batch of both phases while its counters can still be trusted."""
        num_prefills = len(scheduler_output.scheduled_new_reqs)
        num_prefills += self._count_prefills(scheduler_output.scheduled_cached_reqs)
        num_decodes = len(scheduler_output.num_scheduled_tokens) - num_prefills
        if num_prefills > self.max_prefills_per_batch or (num_prefills and num_decodes):
            raise RuntimeError(
                f"a step must hold one prefill or only decodes, not {num_prefills} prefills and "
                f"{num_decodes} decodes"
            )

    def _count_prefills(self, cached_reqs: CachedRequestData) -> int:
        """Return how many of the requests have prompt tokens left to compute.

        Those have no output yet, known or in flight, and all others have. So no request is looked
        at, in a check that every step makes.
        """
        return cached_reqs.num_output_tokens.count(0)

    def _is_prefill_step(self, scheduler_output: SchedulerOutput) -> bool:
        """Whether the step's one phase is prefill, judged by the counters before the step."""
        if scheduler_output.scheduled_new_reqs:
            return True
        cached_reqs = scheduler_output.scheduled_cached_reqs
        if not cached_reqs.req_ids:
            return False
        # All of a step is of one phase, so its first request tells.
        request = self.requests[cached_reqs.req_ids[0]]
        return cached_reqs.num_computed_tokens[0] < self._num_prefill_tokens(request)

    def _check_progress(self, scheduler_output: SchedulerOutput) -> None:
        if scheduler_output.num_scheduled_tokens or self._has_steps_in_flight():
            return
        if not self.requests:
            return
        queue = [request.request_id for request in islice(self.waiting, 8)]
        reason = "no request waits"
        if self.waiting:
            head = self.waiting[0]
            # With the batch full of prompts and still nothing scheduled, the head was let through.
            was_admitted = self._hold_reason in (None, HoldReason.PREFILL_BATCH)
            held = "not scheduled" if was_admitted else self._hold_reason
            room = self._kv_admission.explain(head, self._block_holders(head))
            reason = f"`{head.request_id}` waits: {held} ({room})"
        raise NoProgressError(
            f"nothing can be scheduled and no step is in flight; {reason}; running "
            f"{[request.request_id for request in self.running]}, waiting {queue} of "
            f"{len(self.waiting)}",
        )

    def _update_state(self, scheduler_output: SchedulerOutput, is_prefill: bool) -> None:
        if not self.waiting and not self.running:
            self._state = SchedulerState.IDLE
        elif scheduler_output.num_scheduled_tokens:
            self._state = (
                SchedulerState.ACTIVE_PREFILL if is_prefill else SchedulerState.ACTIVE_DECODE
            )
            # A prefill that no decode had to wait for does not count.
            keeps_waiting = is_prefill and len(self.running) > 1
            self._num_consecutive_prefills = (
                self._num_consecutive_prefills + 1 if keeps_waiting else 0
            )

    def _record_stats(self, scheduler_output: SchedulerOutput, num_hidden: int) -> None:
        num_prefix_queries = num_prefix_hits = 0
        for new in scheduler_output.scheduled_new_reqs:
            num_prefix_queries += self.requests[new.req_id].num_prompt_tokens
            num_prefix_hits += new.num_computed_tokens
        self._stats = (
            self._state,
            len(self.running),
            len(self.waiting),
            num_hidden,
            self._hold_reason,
            self._kv.free_blocks,
            scheduler_output.total_num_scheduled_tokens,
            self._num_padded_tokens,
            num_prefix_queries,
            num_prefix_hits,
        )
