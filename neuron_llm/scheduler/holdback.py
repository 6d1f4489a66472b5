"""The holdback logic: what a scheduler may see, so that its step holds one phase only.

A device with static graphs runs one prefill chunk or a batch of decodes, never both, and cannot
preempt. Nothing of that is known to the scheduler underneath. Around each of its steps the mixin
hides the requests that must not be in it, and puts them back in order afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from neuron_llm.scheduler.buckets import get_bucket_for_count
from neuron_llm.scheduler.config import SchedulerConfig
from neuron_llm.scheduler.output import SchedulerOutput
from neuron_llm.scheduler.policy.admission import KVAdmission, KVPort
from neuron_llm.scheduler.request import Request
from neuron_llm.scheduler.stats import ACTIVE_DECODE, HoldReason, SchedulerState, SchedulerStats
from neuron_llm.scheduler.step_checks import check_prefill_step, no_progress


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
        # Decodes that are hidden from a prefill, and the prefill that is hidden from decodes.
        self._running_holdback: list[Request] = []
        self._prefill_holdback: list[Request] = []
        self.total_scheduled_tokens = 0
        self.total_padding_tokens = 0
        self._kv = kv
        self._kv_admission = KVAdmission(config, kv)
        self._num_consecutive_prefills = 0
        self._state = SchedulerState.IDLE
        self._num_hidden = 0
        self._num_prefix_queries = 0
        self._hold_reason: HoldReason | None = None
        self._last_output: SchedulerOutput | None = None

    @property
    def state(self) -> SchedulerState:
        """The phase of the last step that scheduled anything; IDLE when the queues are empty."""
        return self._state

    @property
    def last_stats(self) -> SchedulerStats | None:
        """What the last step did, None before the first; made when it is asked for.

        So the counts of queues and blocks are those of that moment: ask before the output comes in.
        """
        if (output := self._last_output) is None:
            return None
        new_reqs = output.scheduled_new_reqs
        return SchedulerStats(
            state=self._state,
            num_running=len(self.running),
            num_waiting=len(self.waiting),
            num_hidden=self._num_hidden,
            hold_reason=self._hold_reason,
            num_free_blocks=self._kv.num_free_blocks,
            num_scheduled_tokens=output.total_num_scheduled_tokens,
            num_padded_tokens=sum((output.num_scheduled_tokens_padded or {}).values()),
            num_prefix_queries=self._num_prefix_queries if new_reqs else 0,
            num_prefix_hits=sum(new.num_computed_tokens for new in new_reqs),
        )

    @property
    def at_capacity(self) -> bool:
        """Whether the running requests, hidden ones included, take all `max_num_seqs` slots."""
        return len(self.running) >= self.max_num_seqs

    @property
    def has_prefill_in_running(self) -> bool:
        """Whether a running request still has prompt tokens to compute."""
        return any(map(self._is_prefill_request, self.running))

    @property
    def _max_kv_concurrent(self) -> int:
        """How many requests of `max_model_len` fit into the KV cache together."""
        return self._kv_admission.max_concurrent

    def schedule(self) -> SchedulerOutput:
        """Plan the next step: one prefill chunk of one request, or a batch of decodes.

        Raises:
            NoProgressError: requests are left, nothing is in flight, and nothing can be scheduled.
        """
        scheduler_output = self._schedule_one_phase()
        # 6. Pad the tensor size of a prefill; the token counts stay what they are.
        scheduler_output = self._apply_padding_and_log_stats(scheduler_output)
        # 7. `_check_phases()` has seen the output before the counters moved on. Was there any?
        if not scheduler_output.num_scheduled_tokens:
            self._check_progress(scheduler_output)
        # 8. Name the phase of the step.
        self._update_state(scheduler_output)
        self._last_output = scheduler_output
        return scheduler_output

    def _schedule_one_phase(self) -> SchedulerOutput:
        """Decide which phase the scheduler underneath sees, and ask it."""
        max_num_running_reqs = self.max_num_running_reqs
        max_num_scheduled_tokens = self.max_num_scheduled_tokens
        # 1. Hide the whole waiting queue. The two queues trade places, whatever their length.
        self.waiting, self.holdback_queue = self.holdback_queue, self.waiting
        try:
            # 2. Give back the head of the queue if it may start now; nobody overtakes it.
            self._admit_from_holdback()
            # 3. One phase per step: hide the running requests of the other one.
            self._hide_other_phase()
            self._num_hidden = len(self._running_holdback) + len(self._prefill_holdback)
            self._limit_step(self._num_hidden)
            # 4. The scheduler underneath does its work on what is left.
            return self._call_base_schedule()
        finally:
            # 5. Restore queues and limits, also when it failed.
            self._restore_running()
            self._restore_waiting()
            self.max_num_running_reqs = max_num_running_reqs
            self.max_num_scheduled_tokens = max_num_scheduled_tokens

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

    def _num_prefill_tokens(self, request: Request) -> int:
        """Return how many of the request's tokens are computed by prefills."""
        return request.num_prompt_tokens

    def _is_prefill_step(self, scheduler_output: SchedulerOutput) -> bool:
        """Whether a step that `_check_phases()` let pass is a prefill.

        It is of one phase only, so its first request tells. The output holds the counters from
        before the step; the request's own have moved on.
        """
        if scheduler_output.scheduled_new_reqs:
            return True
        cached = scheduler_output.scheduled_cached_reqs
        if not cached.req_ids:
            return False
        request = self.requests[cached.req_ids[0]]
        return cached.num_computed_tokens[0] < self._num_prefill_tokens(request)

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

    def _hide_other_phase(self) -> None:
        """Decide of which phase the step is, and hide the running requests of the other one."""
        if self.has_prefill_in_running:
            prefills = [r for r in self.running if self._is_prefill_request(r)]
            decodes = [r for r in self.running if not self._is_prefill_request(r)]
            if self._is_decode_due():
                self.running, self._prefill_holdback = decodes, prefills
            else:
                self.running, self._running_holdback = prefills, decodes
        elif self._is_any_admitted():
            self.running, self._running_holdback = [], self.running

    def _limit_step(self, num_hidden: int) -> None:
        """Count hidden requests against the slots, and rows of decodes not against the budget."""
        self.max_num_running_reqs -= num_hidden
        # The budget is the largest prefill graph; how many rows decode, `max_num_seqs` says.
        if len(self.running) > self.max_num_scheduled_tokens:
            self.max_num_scheduled_tokens = len(self.running)

    def _restore_running(self) -> None:
        """Put the hidden requests back: what ran longer stands before what is new."""
        if self._running_holdback or self._prefill_holdback:
            self.running = [*self._running_holdback, *self.running, *self._prefill_holdback]
            self._running_holdback, self._prefill_holdback = [], []

    def _restore_waiting(self) -> None:
        while self.waiting:
            self.holdback_queue.appendleft(self.waiting.pop())
        self.waiting, self.holdback_queue = self.holdback_queue, self.waiting

    def _apply_padding_and_log_stats(self, scheduler_output: SchedulerOutput) -> SchedulerOutput:
        num_tokens = scheduler_output.total_num_scheduled_tokens
        self.total_scheduled_tokens += num_tokens
        padded = scheduler_output.num_scheduled_tokens.copy()
        if self._is_prefill_step(scheduler_output):
            padded = {i: self._calculate_padded_count(n) for i, n in padded.items()}
            self.total_padding_tokens += sum(padded.values()) - num_tokens
            started = [self.requests[new.req_id] for new in scheduler_output.scheduled_new_reqs]
            self._num_prefix_queries = sum(request.num_prompt_tokens for request in started)
        scheduler_output.num_scheduled_tokens_padded = padded
        return scheduler_output

    def _calculate_padded_count(self, token_count: int) -> int:
        """Return the smallest bucket that holds the chunk; no tokens need none.

        Raises:
            NoBucketError: none does.
        """
        if token_count == 0:
            return 0
        return get_bucket_for_count(token_count, self.num_batched_tokens_buckets)

    def _check_phases(self, scheduler_output: SchedulerOutput) -> None:
        """Refuse a step of both phases while its counters can still be trusted.

        A request with prompt tokens left has no output yet, known or in flight, and every other one
        has. So no request is looked at, in a check that every step makes.
        """
        num_continued = scheduler_output.scheduled_cached_reqs.num_output_tokens.count(0)
        if num_continued or scheduler_output.scheduled_new_reqs:
            check_prefill_step(scheduler_output, num_continued, self.max_prefills_per_batch)

    def _check_progress(self, scheduler_output: SchedulerOutput) -> None:
        if not self.requests or self._has_steps_in_flight():
            return
        why = "no request waits"
        if self.waiting:
            head = self.waiting[0]
            # With the batch full of prompts and still nothing scheduled, the head was let through.
            was_admitted = self._hold_reason in (None, HoldReason.PREFILL_BATCH)
            held = "not scheduled" if was_admitted else self._hold_reason
            room = self._kv_admission.explain(head, self._block_holders(head))
            why = f"`{head.request_id}` waits: {held} ({room})"
        raise no_progress(self.running, self.waiting, len(self.waiting), why)

    def _update_state(self, scheduler_output: SchedulerOutput) -> None:
        if not self.running and not self.waiting:
            self._state = SchedulerState.IDLE
        elif self._is_prefill_step(scheduler_output):
            self._state = SchedulerState.ACTIVE_PREFILL
            # A prefill that no decode had to wait for does not count.
            num_in_a_row = self._num_consecutive_prefills + 1
            self._num_consecutive_prefills = num_in_a_row if len(self.running) > 1 else 0
        elif scheduler_output.num_scheduled_tokens:
            self._state = ACTIVE_DECODE
            self._num_consecutive_prefills = 0
