"""Scheduling ahead: step N + 1 is planned while step N runs and its tokens are not known yet."""

from __future__ import annotations

from neuron_llm.scheduler.output import SchedulerOutput
from neuron_llm.scheduler.request import Request, RequestStatus
from neuron_llm.scheduler.scheduler import Scheduler


class AsyncScheduler(Scheduler):
    """A scheduler that counts a token still in flight as an output placeholder.

    The runner fills a placeholder with the token it sampled itself. A request never gets more steps
    than `max_tokens` or `max_model_len` allow; an EOS that is found late costs one slot of the next
    step, whose token is dropped.
    """

    def _num_new_tokens(self, request: Request) -> int:
        num_tokens = request.num_tokens + request.num_output_placeholders
        # With this many tokens the request ends by its length, whatever the last ones will be.
        max_num_tokens = min(request.num_prompt_tokens + request.max_tokens, self.max_model_len)
        if num_tokens >= max_num_tokens:
            return 0
        return num_tokens - request.num_computed_tokens

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        for req_id in scheduler_output.num_scheduled_tokens:
            request = self.requests[req_id]
            # Every step but a prefill chunk that is not the last samples one token.
            if request.num_computed_tokens >= request.num_tokens + request.num_output_placeholders:
                request.num_output_placeholders += 1

    def _update_request_with_output(self, request: Request, token_ids: list[int]) -> list[int]:
        request.num_output_placeholders -= len(token_ids)
        token_ids = super()._update_request_with_output(request, token_ids)
        if request.status is RequestStatus.RUNNING:
            # Blocks whose tokens were not known when they were allocated.
            num_known_tokens = request.num_computed_tokens - request.num_output_placeholders
            self.kv_cache_manager.cache_blocks(request, num_known_tokens)
        return token_ids
