"""What vLLM calls differently from one version to the next: the only place that asks for it.

Names of 0.31 and later come first; the others are those of 0.30 and before.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.interface import PauseState


def side_queue(scheduler: Any) -> Any:
    """Return the queue that vLLM drains before `waiting`.

    It holds requests that have KV blocks already; before 0.31, every request that waits for
    something else than a slot.
    """
    if hasattr(scheduler, "kv_holding_waiting"):
        return scheduler.kv_holding_waiting
    return scheduler.skipped_waiting


def set_side_queue(scheduler: Any, queue: Any) -> None:
    """Put another queue in the place of the one that `side_queue` returns."""
    if hasattr(scheduler, "kv_holding_waiting"):
        scheduler.kv_holding_waiting = queue
    else:
        scheduler.skipped_waiting = queue


def promote(scheduler: Any, request: Any) -> bool:
    """Let a request wait for nothing but a slot if what it waited for has come; return whether."""
    if hasattr(scheduler, "_handle_blocked_waiting_request"):
        return bool(scheduler._handle_blocked_waiting_request(request))
    return bool(scheduler._try_promote_blocked_waiting_request(request))


def is_waiting_open(scheduler: Any) -> bool:
    """Whether the pause state lets requests start from `waiting`."""
    is_unpaused: bool = scheduler.pause_state == PauseState.UNPAUSED
    return is_unpaused


def is_side_queue_open(scheduler: Any) -> bool:
    """Whether the pause state lets requests start from the side queue."""
    drains_side_queue = hasattr(scheduler, "kv_holding_waiting")
    is_drained_only = drains_side_queue and scheduler.pause_state == PauseState.PAUSED_NEW
    return is_drained_only or is_waiting_open(scheduler)


def active_limit(scheduler: Any) -> int:
    """Return how many requests vLLM lets run together."""
    limit: int = getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs)
    return limit


def set_active_limit(scheduler: Any, limit: int) -> None:
    """Change how many requests vLLM lets start, where it counts those by themselves."""
    if hasattr(scheduler, "max_num_active_reqs"):
        scheduler.max_num_active_reqs = limit


def long_prefill_threshold(scheduler: Any) -> int:
    """Return the most tokens of one prompt per step while others wait; 0 for no such limit."""
    config = scheduler.scheduler_config
    threshold: int = config.long_prefill_token_threshold
    if threshold and getattr(config, "long_prefill_token_threshold_adaptive", False):
        fair_share: int = config.max_num_batched_tokens // len(scheduler.requests)
        return max(threshold, fair_share)
    return threshold
