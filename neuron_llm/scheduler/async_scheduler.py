"""Scheduling ahead: step N + 1 is planned while step N runs and its tokens are not known yet."""

from __future__ import annotations

from neuron_llm.scheduler.output import SchedulerOutput
from neuron_llm.scheduler.scheduler import Scheduler


class AsyncScheduler(Scheduler):
    """A scheduler that counts a token still in flight as an output placeholder.

    The runner fills a placeholder with the token it sampled itself. A request never gets more steps
    than `max_tokens` or `max_model_len` allow; an EOS that is found late costs one slot of the next
    step, whose token is dropped.
    """

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        _, scheduled = self._in_flight[-1]
        for request in scheduled:
            # Every step but a prefill chunk that is not the last samples one token.
            if request.num_computed_tokens >= request.num_tokens + request.num_output_placeholders:
                request.num_output_placeholders += 1
