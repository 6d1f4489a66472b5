"""The holdback logic over vLLM's own schedulers; `HoldbackMixin` is the same as over ours.

What is added here is what only vLLM has: a second waiting queue, requests that wait for something
else than a slot (a grammar, a KV transfer, further input), pausing, and preemption, which never
happens because admission reserves what every running request may come to need.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import lt
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from neuron_llm.errors import OutOfBlocksError
from neuron_llm.scheduler.holdback import HoldbackMixin
from neuron_llm.scheduler.policy.admission import check_length
from neuron_llm.scheduler.stats import HoldReason
from neuron_llm.scheduler.step_checks import check_prefill_step
from neuron_llm.scheduler.vllm_plugin import versions
from neuron_llm.scheduler.vllm_plugin.kv_port import VllmKV
from neuron_llm.scheduler.vllm_plugin.plugin_config import (
    make_num_seqs_buckets,
    make_scheduler_config,
    read_neuron_config,
)


class NeuronScheduler(HoldbackMixin, Scheduler):  # type: ignore[misc] # vLLM is not type-checked
    """vLLM's scheduler with one prefill chunk or a batch of decodes per step, never both.

    Every `SchedulerOutput` gets the attribute `num_scheduled_tokens_padded`, the tensor size of
    each request along the token axis.

    Args:
        args: what vLLM's scheduler takes, in whatever version.
        kwargs: the same, by name.

    Attributes:
        num_seqs_buckets: decode batch sizes; for the model runner, the scheduler needs none.

    Raises:
        ConfigError: vLLM's configuration or `neuron_config` does not go with static graphs.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        neuron_config = read_neuron_config(self)
        self._config = make_scheduler_config(self, neuron_config)
        self.num_seqs_buckets = make_num_seqs_buckets(neuron_config, self._config)
        self._side_holdback = type(self.waiting)()
        self._admitted_from = self._side_holdback
        self._admitted_index = 0
        self._num_steps_in_flight = 0
        self._is_scheduling = False
        self._is_prefill_throttled = False
        self._hides_decodes = False
        # Whether the last step hid decodes for a prefill that then got nothing.
        self._is_prefill_stuck = False
        self._init_holdback(self._config, VllmKV(self.kv_cache_manager))

    @property
    def at_capacity(self) -> bool:
        """Whether running requests and paused sessions take all slots."""
        num_paused: int = self.num_waiting_for_streaming_input
        return len(self.running) + num_paused >= self.max_num_seqs

    def add_request(self, request: Any) -> None:
        """Queue a new request.

        Raises:
            RequestError: it could never be scheduled. vLLM's front end refuses such a prompt
                before it comes here.
        """
        if request.request_id not in self.requests:
            check_length(request, self._config)
        super().add_request(request)

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """Plan the next step.

        Args:
            throttle_prefills: run decodes if there are any (data parallel ranks prefill together).

        Raises:
            NoProgressError: requests are left that wait for nothing, and nothing can be scheduled.
        """
        self._is_prefill_throttled = throttle_prefills
        output = super().schedule()
        self._is_prefill_stuck = self._hides_decodes and not output.num_scheduled_tokens
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Take in what a step sampled; return vLLM's outputs by client."""
        if scheduler_output.num_scheduled_tokens:
            self._num_steps_in_flight -= 1
        if self.connector is not None:
            # A KV transfer may give blocks back, and no running request's end tells of it.
            self._kv_admission.forget_refusal()
        return super().update_from_output(scheduler_output, model_runner_output)

    def _call_base_schedule(self) -> Any:
        limit = versions.active_limit(self)
        versions.set_active_limit(self, limit - self._num_hidden)
        self._is_scheduling = True
        try:
            # Whichever of vLLM's schedulers comes after the mixin.
            return super(HoldbackMixin, self).schedule()
        finally:
            self._is_scheduling = False
            versions.set_active_limit(self, limit)

    def _has_steps_in_flight(self) -> bool:
        return self._num_steps_in_flight > 0

    def _num_prefill_tokens(self, request: Any) -> int:
        # A request that was preempted by `reset_prefix_cache` computes its outputs again, too.
        num_tokens: int = max(request.num_prompt_tokens, request.num_tokens - 1)
        return num_tokens

    def _check_phases(self, scheduler_output: Any) -> None:
        num_continued = self._count_prefills(scheduler_output.scheduled_cached_reqs)
        if num_continued or scheduler_output.scheduled_new_reqs:
            check_prefill_step(scheduler_output, num_continued, self.max_prefills_per_batch)

    def _count_prefills(self, cached_reqs: Any) -> int:
        requests = map(self.requests.__getitem__, cached_reqs.req_ids)
        return sum(
            map(lt, cached_reqs.num_computed_tokens, map(self._num_prefill_tokens, requests))
        )

    def _admit_from_holdback(self) -> None:
        """Show the first request that waits for nothing but a slot, the side queue's first."""
        self._hold_reason = None
        side_queue = versions.side_queue(self)
        versions.set_side_queue(self, self._side_holdback)
        self._side_holdback = side_queue
        if versions.is_side_queue_open(self) and self._admit_first_ready(
            side_queue, versions.side_queue(self)
        ):
            return
        if versions.is_waiting_open(self) and self._admit_first_ready(
            self.holdback_queue, self.waiting
        ):
            return
        if side_queue or self.holdback_queue:
            self._hold_reason = HoldReason.NOT_READY

    def _admit_first_ready(self, hidden: Any, visible: Any) -> bool:
        """Move the first ready request if it may start; return whether there is a ready one."""
        for index, request in enumerate(hidden):
            if self._is_ready(request):
                if self.can_schedule(request):
                    del hidden[index]
                    visible.append(request)
                    self._admitted_from, self._admitted_index = hidden, index
                return True
        return False

    def _is_ready(self, request: Any) -> bool:
        is_blocked = self._is_blocked_waiting_status(request.status)
        return not is_blocked or versions.promote(self, request)

    def _is_any_admitted(self) -> bool:
        return bool(self.waiting or versions.side_queue(self))

    def _block_holders(self, candidate: Any) -> list[Any]:
        side = [
            request
            for request in self._side_requests()
            if request is not candidate and self._kv.blocks_held(request)
        ]
        return [*self.running, *side] if side else self.running

    def _side_requests(self) -> Iterator[Any]:
        return chain(versions.side_queue(self), self._side_holdback)

    def _is_decode_due(self) -> bool:
        if super()._is_decode_due():
            return True
        is_prefill_deferred = self._is_prefill_throttled or self._is_prefill_stuck
        return is_prefill_deferred and len(self.running) > self.has_prefill_in_running

    def _hide_other_phase(self) -> None:
        super()._hide_other_phase()
        self._hides_decodes = bool(self._running_holdback)

    def _limit_step(self, num_hidden: int) -> None:
        super()._limit_step(num_hidden)
        if not self.scheduler_config.enable_chunked_prefill:
            return  # A prompt over the budget would never start.
        if self._is_any_admitted() or self.has_prefill_in_running:
            threshold = versions.long_prefill_threshold(self)
            if threshold and len(self.requests) > 1:
                # vLLM has this rule itself, but takes what it can see for all there is.
                self.max_num_scheduled_tokens = min(self.max_num_scheduled_tokens, threshold)

    def _restore_waiting(self) -> None:
        side_queue = versions.side_queue(self)
        for visible, hidden in (
            (self.waiting, self.holdback_queue),
            (side_queue, self._side_holdback),
        ):
            # Back to its place, behind requests that are not ready; others were just put there.
            index = self._admitted_index if hidden is self._admitted_from else 0
            while visible:
                hidden.insert(index, visible.pop())
        self.waiting, self.holdback_queue = self.holdback_queue, self.waiting
        versions.set_side_queue(self, self._side_holdback)
        self._side_holdback = side_queue

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        self._check_phases(scheduler_output)
        super()._update_after_schedule(scheduler_output)
        if scheduler_output.num_scheduled_tokens:
            self._num_steps_in_flight += 1

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if self._is_scheduling:
            # It has left `running` already.
            self.running.append(request)
            raise OutOfBlocksError(
                f"request `{request.request_id}` would have to give its KV blocks back: "
                f"{self._kv.num_free_blocks} are free"
            )
        # Not for want of blocks: the prefix cache is to be reset.
        super()._preempt_request(request, *args, **kwargs)

    def _check_progress(self, scheduler_output: Any) -> None:
        if scheduler_output.num_scheduled_tokens or self._has_steps_in_flight():
            return
        is_open = versions.is_waiting_open(self)
        if self.connector is not None or not is_open or self.num_waiting_for_streaming_input:
            return  # What is missing comes from outside, to a session that has slot and blocks too.
        waiting = chain(self._side_requests(), self.waiting)
        if self.running or any(not self._is_blocked_waiting_status(r.status) for r in waiting):
            super()._check_progress(scheduler_output)


class NeuronAsyncScheduler(NeuronScheduler, AsyncScheduler):  # type: ignore[misc] # as above
    """The same over vLLM's scheduler for steps that are planned ahead."""
