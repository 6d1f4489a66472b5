"""What one step of the holdback scheduler did, for progress lines, metrics and logs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class SchedulerState(Enum):
    """What the last step that scheduled anything did."""

    IDLE = "idle"
    ACTIVE_PREFILL = "active_prefill"
    ACTIVE_DECODE = "active_decode"


ACTIVE_DECODE = SchedulerState.ACTIVE_DECODE
"""Looked up once: a member of an enum takes longer to find than most of what a decode step does."""


class HoldReason(StrEnum):
    """Why the head of the waiting queue was not started."""

    SLOTS = "all `max_num_seqs` slots are taken"
    PREFILL_RUNNING = "another prompt is being computed"
    PREFILL_BATCH = "one prompt per step"
    KV = "too few free KV blocks"
    STREAK = "`max_consecutive_prefills` is reached and decodes are due"
    NOT_READY = "it needs more than a slot, or the scheduler is paused"


@dataclass(slots=True, kw_only=True)
class SchedulerStats:
    """What a step scheduled, and the queues when it was asked for.

    Attributes:
        state: the phase of the step, or of the last one that scheduled anything.
        num_running: requests that hold blocks.
        num_waiting: requests that do not.
        num_hidden: running requests that this step left out, because it was of the other phase.
        hold_reason: why the first waiting request waits; None if none does.
        num_free_blocks: blocks that nobody holds.
        num_scheduled_tokens: real tokens of the step.
        num_padded_tokens: tokens of the step's tensors along the token axis; rows that fill up a
            decode batch are not in it.
        num_prefix_queries: tokens looked up in the prefix cache by the requests that started.
        num_prefix_hits: those of them that were found.
    """

    state: SchedulerState
    num_running: int
    num_waiting: int
    num_hidden: int
    hold_reason: HoldReason | None
    num_free_blocks: int
    num_scheduled_tokens: int
    num_padded_tokens: int
    num_prefix_queries: int
    num_prefix_hits: int

    def __str__(self) -> str:
        """Return one line for a log."""
        held_back = f" ({self.hold_reason})" if self.hold_reason else ""
        return (
            f"{self.state.value}, tokens {self.num_scheduled_tokens} in {self.num_padded_tokens}, "
            f"running {self.num_running} ({self.num_hidden} hidden), "
            f"waiting {self.num_waiting}{held_back}, free blocks {self.num_free_blocks}, "
            f"prefix hits {self.num_prefix_hits} of {self.num_prefix_queries}"
        )
