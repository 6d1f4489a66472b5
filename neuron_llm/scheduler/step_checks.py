"""What must be true of a step of the holdback scheduler, and what is said when it is not."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from neuron_llm.errors import NoProgressError
from neuron_llm.scheduler.output import SchedulerOutput
from neuron_llm.scheduler.request import Request


def check_prefill_step(
    scheduler_output: SchedulerOutput, num_continued: int, max_prefills: int
) -> None:
    """Refuse a step with a prefill that holds anything else.

    Args:
        scheduler_output: the step.
        num_continued: prefills in it whose requests ran before.
        max_prefills: how many there may be.

    Raises:
        RuntimeError: too many prefills, or decodes beside them.
    """
    num_prefills = len(scheduler_output.scheduled_new_reqs) + num_continued
    num_decodes = len(scheduler_output.num_scheduled_tokens) - num_prefills
    if num_prefills > max_prefills or num_decodes:
        raise RuntimeError(
            f"a step must hold one prefill or only decodes, not {num_prefills} prefills and "
            f"{num_decodes} decodes"
        )


def no_progress(
    running: Iterable[Request], waiting: Iterable[Request], num_waiting: int, why: str
) -> NoProgressError:
    """Return the error for requests that are left and will never be scheduled.

    Args:
        running: all that hold blocks.
        waiting: all that wait; the first few are named.
        num_waiting: how many they are.
        why: what the first of them waits for.
    """
    queue = [request.request_id for request in islice(waiting, 8)]
    return NoProgressError(
        f"nothing can be scheduled and no step is in flight; {why}; running "
        f"{[request.request_id for request in running]}, waiting {queue} of {num_waiting}"
    )
