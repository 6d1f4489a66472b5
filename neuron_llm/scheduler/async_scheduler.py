"""Scheduling ahead: step N + 1 is planned while step N runs and its tokens are not known yet."""

from __future__ import annotations

from neuron_llm.scheduler.output import SchedulerOutput
from neuron_llm.scheduler.request import Request
from neuron_llm.scheduler.scheduler import Scheduler


class AsyncScheduler(Scheduler):
    """A scheduler that counts a token still in flight as an output placeholder.

    The runner fills a placeholder with the token it sampled itself. A request never gets more steps
    than `max_tokens` or `max_model_len` allow; an EOS that is found late costs one slot of the next
    step, whose token is dropped.
    """

    def _num_new_tokens(self, request: Request) -> int:
        num_tokens = request.num_tokens + request.num_output_placeholders
        if num_tokens >= request.max_num_tokens:
            # It will have ended by its length, whatever the tokens in flight turn out to be.
            return 0
        return num_tokens - request.num_computed_tokens

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        if not scheduler_output.num_scheduled_tokens:
            return
        for request in self._in_flight[-1]:
            # Every step but a prefill chunk that is not the last samples one token.
            if request.num_computed_tokens >= request.num_tokens + request.num_output_placeholders:
                request.num_output_placeholders += 1

    def _update_request_with_output(self, request: Request, token_ids: list[int]) -> list[int]:
        request.num_output_placeholders -= len(token_ids)
        token_ids = super()._update_request_with_output(request, token_ids)
        # The block had no hash when it was allocated, since its last token was still in flight.
        num_known_tokens = request.num_computed_tokens - request.num_output_placeholders
        if num_known_tokens % self.config.block_size == 0:
            self.kv_cache_manager.cache_blocks(request, num_known_tokens)
        return token_ids
