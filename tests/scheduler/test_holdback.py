"""What the scheduler underneath sees, recorded at the moment it is called."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from scheduler_factory import add_requests, make_request, make_scheduler, run_to_end, step

from neuron_llm.scheduler import (
    HoldReason,
    NeuronAsyncScheduler,
    NeuronScheduler,
    Request,
    RequestStatus,
    SchedulerOutput,
    SchedulerState,
)

ABORTED = RequestStatus.FINISHED_ABORTED


class ViewRecorder:
    """Mixed in front of a scheduler: notes the queues and limits that its base is shown."""

    views: list[tuple[list[str], list[str], int]]
    failure: Exception | None = None

    def _call_base_schedule(self) -> SchedulerOutput:
        assert isinstance(self, NeuronScheduler)
        self.views = [*getattr(self, "views", []), self.view()]
        if self.failure:
            raise self.failure
        return super()._call_base_schedule()  # type: ignore[misc,no-any-return]

    def view(self) -> tuple[list[str], list[str], int]:
        assert isinstance(self, NeuronScheduler)
        waiting = [request.request_id for request in self.waiting]
        running = [request.request_id for request in self.running]
        return waiting, running, self.max_num_running_reqs


class Recording(ViewRecorder, NeuronScheduler):
    pass


class RecordingAsync(ViewRecorder, NeuronAsyncScheduler):
    pass


BOTH = pytest.mark.parametrize("scheduler_class", [Recording, RecordingAsync])


def ids(queue: deque[Request] | list[Request]) -> list[str]:
    return [request.request_id for request in queue]


def make_decoding(scheduler_class: type[Any], num_decodes: int, **changes: Any) -> Any:
    """Return a scheduler with decodes `d0`, `d1`, … running and nothing waiting."""
    scheduler = make_scheduler(scheduler_class, **changes)
    for index in range(num_decodes):
        scheduler.add_request(make_request(f"d{index}", max_tokens=50))
        step(scheduler)
    scheduler.views.clear()
    return scheduler


@BOTH
def test_an_idle_scheduler_shows_one_prompt_of_many(scheduler_class: type[Any]) -> None:
    scheduler = make_scheduler(scheduler_class)
    add_requests(scheduler, *(make_request(f"r{i}") for i in range(3)))
    step(scheduler)
    assert scheduler.views == [(["r0"], [], 4)]
    assert ids(scheduler.waiting) == ["r1", "r2"]
    assert ids(scheduler.running) == ["r0"]


@BOTH
def test_a_new_prompt_hides_all_decodes(scheduler_class: type[Any]) -> None:
    scheduler = make_decoding(scheduler_class, 2)
    add_requests(scheduler, make_request("new"), make_request("next"))
    assert step(scheduler).num_tokens == {"new": 5}
    assert scheduler.views == [(["new"], [], 2)]
    assert ids(scheduler.running) == ["d0", "d1", "new"]
    assert ids(scheduler.waiting) == ["next"]


@BOTH
def test_a_prompt_in_chunks_hides_decodes_until_its_last(scheduler_class: type[Any]) -> None:
    scheduler = make_decoding(scheduler_class, 2)
    add_requests(scheduler, make_request("new", prompt_len=40), make_request("next"))
    chunks = [step(scheduler).num_tokens for _ in range(3)]
    assert chunks == [{"new": 16}, {"new": 16}, {"new": 8}]
    assert scheduler.views == [(["new"], [], 2), ([], ["new"], 2), ([], ["new"], 2)]
    assert ids(scheduler.running) == ["d0", "d1", "new"]
    assert step(scheduler).num_tokens == {"next": 5}


@BOTH
def test_decodes_alone_are_all_shown(scheduler_class: type[Any]) -> None:
    scheduler = make_decoding(scheduler_class, 3)
    assert step(scheduler).num_tokens == {"d0": 1, "d1": 1, "d2": 1}
    assert scheduler.views == [([], ["d0", "d1", "d2"], 4)]


@BOTH
def test_a_blocked_prompt_hides_no_decode(scheduler_class: type[Any]) -> None:
    scheduler = make_decoding(scheduler_class, 2, max_num_seqs=2)
    scheduler.add_request(make_request("new"))
    assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    assert scheduler.views == [([], ["d0", "d1"], 2)]
    assert scheduler.last_stats.hold_reason is HoldReason.SLOTS
    assert ids(scheduler.waiting) == ["new"]


def test_hidden_requests_count_against_the_slots() -> None:
    scheduler = make_decoding(Recording, 3, max_num_seqs=4)
    add_requests(scheduler, make_request("a"), make_request("b"))
    run_to_end(scheduler)
    assert all(
        len(waiting) <= visible_slots - len(running)
        for waiting, running, visible_slots in scheduler.views
    )


@BOTH
@pytest.mark.parametrize("chunked", [False, True])
def test_queues_and_limits_are_restored_when_the_base_fails(
    scheduler_class: type[Any], chunked: bool
) -> None:
    scheduler = make_decoding(scheduler_class, 2)
    add_requests(scheduler, make_request("a", prompt_len=40), make_request("b"), make_request("c"))
    if chunked:
        step(scheduler)
    before = [*scheduler.running], [*scheduler.waiting]
    scheduler.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        scheduler.schedule()
    assert (scheduler.running, list(scheduler.waiting)) == before
    assert not scheduler.holdback_queue
    assert (scheduler.max_num_running_reqs, scheduler.max_num_scheduled_tokens) == (4, 16)
    scheduler.failure = None
    ends = [o.request_id for s in run_to_end(scheduler) for o in s.outputs if o.finish_reason]
    assert sorted(ends) == ["a", "b", "c", "d0", "d1"]


def test_the_waiting_queue_changes_places_and_is_not_copied() -> None:
    scheduler = make_decoding(Recording, 1, max_num_seqs=1)
    seen = []

    class CountingDeque(deque[Request]):
        def __iter__(self) -> Any:
            seen.append("iterated")
            return super().__iter__()

        def popleft(self) -> Request:
            seen.append("popped")
            return super().popleft()

    scheduler.waiting = CountingDeque(make_request(f"w{i}") for i in range(1000))
    queue = scheduler.waiting
    for request in list(queue):
        scheduler.requests[request.request_id] = request
    seen.clear()
    scheduler.failure = None
    step(scheduler)
    assert scheduler.waiting is queue and len(queue) == 1000
    assert seen.count("popped") == 0
    # The recorder above looks at the queue that the base sees, which is the other one.
    assert seen == []


def test_aborting_a_prompt_in_chunks_shows_the_decodes_again() -> None:
    scheduler = make_decoding(Recording, 2)
    scheduler.add_request(make_request("long", prompt_len=40))
    step(scheduler)
    scheduler.finish_requests("long", ABORTED)
    assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    scheduler.kv_cache_manager.check_integrity()


@pytest.mark.parametrize(
    ("changes", "request_", "reason"),
    [
        ({"max_num_seqs": 2}, make_request("w"), HoldReason.SLOTS),
        ({"num_blocks": 35}, make_request("w", prompt_len=50), HoldReason.KV),
        ({"num_blocks": 33, "kv_admission": "max_model_len"}, make_request("w"), HoldReason.KV),
        ({}, make_request("w"), None),
    ],
)
def test_can_schedule_says_why_not(
    changes: dict[str, Any], request_: Request, reason: HoldReason | None
) -> None:
    scheduler = make_decoding(Recording, 2, **changes)
    assert scheduler.can_schedule(request_) is (reason is None)
    scheduler.add_request(request_)
    step(scheduler)
    assert scheduler.last_stats.hold_reason is reason


def test_a_waiting_prompt_may_not_start_beside_another() -> None:
    scheduler = make_scheduler(NeuronScheduler)
    add_requests(scheduler, make_request("a", prompt_len=40), make_request("b"))
    assert not scheduler.can_schedule(scheduler.waiting[1])  # `a` stands before it
    reasons = []
    for _ in range(4):
        step(scheduler)
        assert scheduler.last_stats
        reasons.append(scheduler.last_stats.hold_reason)
    assert reasons == [
        HoldReason.PREFILL_BATCH,
        HoldReason.PREFILL_RUNNING,
        HoldReason.PREFILL_RUNNING,
        None,
    ]


def test_properties_follow_the_running_queue() -> None:
    scheduler = make_scheduler(NeuronScheduler, max_num_seqs=1)
    assert not scheduler.at_capacity and not scheduler.has_prefill_in_running
    scheduler.add_request(make_request(prompt_len=20))
    step(scheduler)
    assert scheduler.at_capacity and scheduler.has_prefill_in_running
    step(scheduler)
    assert scheduler.at_capacity and not scheduler.has_prefill_in_running


def test_states_follow_the_steps() -> None:
    scheduler = make_scheduler(NeuronScheduler)
    assert scheduler.state is SchedulerState.IDLE
    scheduler.add_request(make_request(prompt_len=20, max_tokens=3))
    states = []
    for _ in range(5):
        step(scheduler)
        states.append(scheduler.state)
    prefill, decode = SchedulerState.ACTIVE_PREFILL, SchedulerState.ACTIVE_DECODE
    assert states == [prefill, prefill, decode, decode, SchedulerState.IDLE]


def test_an_empty_step_keeps_the_state() -> None:
    scheduler = make_scheduler(NeuronScheduler)
    scheduler.add_request(make_request())
    scheduler.schedule()
    scheduler.schedule()
    assert scheduler.state is SchedulerState.ACTIVE_PREFILL


def test_stats_describe_the_step() -> None:
    scheduler = make_decoding(Recording, 2)
    prompt = [*scheduler.requests["d0"].prompt_token_ids[:4], *range(6)]
    add_requests(scheduler, make_request("new", prompt=prompt), make_request("next"))
    step(scheduler)
    stats = scheduler.last_stats
    assert stats.state is SchedulerState.ACTIVE_PREFILL
    assert (stats.num_running, stats.num_waiting, stats.num_hidden) == (3, 1, 2)
    assert stats.hold_reason is HoldReason.PREFILL_BATCH
    assert (stats.num_scheduled_tokens, stats.num_padded_tokens) == (6, 8)
    assert (stats.num_prefix_queries, stats.num_prefix_hits) == (10, 4)
    assert stats.num_free_blocks == 64 - 2 * 2 - 2
