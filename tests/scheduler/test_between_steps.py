"""What changes between two steps counts in the next one, whoever changes it and how."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_factory import add_requests, make_request, make_scheduler, step
from streams import BOTH_CLASSES, run_stream
from test_mutations import find_fault

from neuron_llm.scheduler import (
    HoldReason,
    ModelRunnerOutput,
    NeuronAsyncScheduler,
    NeuronScheduler,
    Request,
    RequestStatus,
    SchedulerOutput,
)

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)


def make_full(scheduler_class: type[Any], **changes: Any) -> Any:
    """Return a scheduler in which `d0` and `d1` decode and `w0` and `w1` are held back."""
    scheduler = make_scheduler(scheduler_class, **{"max_num_seqs": 2, **changes})
    add_requests(scheduler, make_request("d0", max_tokens=30), make_request("d1", max_tokens=40))
    step(scheduler)
    step(scheduler)
    add_requests(scheduler, make_request("w0"), make_request("w1"))
    step(scheduler)
    return scheduler


def remove_ended(scheduler: Any, running: list[Request]) -> None:
    """Take the requests that have ended out of the list, and let it be `running` again."""
    for request in [*running]:
        if request.status.is_finished:
            running.remove(request)
    scheduler.running = running


def abort_in_place(scheduler: Any, request_id: str) -> None:
    running = scheduler.running
    scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
    remove_ended(scheduler, running)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({}, HoldReason.SLOTS), ({"max_num_seqs": 3, "num_blocks": 22}, HoldReason.KV)],
)
def test_a_held_head_waits_until_a_request_ends(
    changes: dict[str, Any], reason: HoldReason
) -> None:
    scheduler = make_full(NeuronScheduler, **changes)
    for _ in range(5):
        assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
        assert scheduler.last_stats.hold_reason is reason
        assert scheduler.last_stats.num_waiting == 2
    scheduler.finish_requests("d0", RequestStatus.FINISHED_ABORTED)
    assert step(scheduler).num_tokens == {"w0": 5}


@EACH_CLASS
def test_the_running_may_stand_in_any_order(scheduler_class: type[Any]) -> None:
    scheduler = make_scheduler(scheduler_class, max_num_seqs=3)
    add_requests(scheduler, make_request("d0", max_tokens=30), make_request("d1", max_tokens=30))
    while len(scheduler.running) < 2:
        step(scheduler)
    budget = scheduler.max_num_scheduled_tokens
    scheduler.add_request(make_request("long", budget + 1, max_tokens=2))
    chunks = []
    while "long" in scheduler.requests:
        scheduler.running.reverse()
        chunks.append(step(scheduler).num_tokens)
    assert [c["long"] for c in chunks if set(c) == {"long"}][:2] == [budget, 1]
    assert all(set(c) in ({"long"}, {"d0", "d1"}, {"long", "d0", "d1"}) for c in chunks)
    assert all(len(c) == 1 or set(c.values()) == {1} for c in chunks)


@EACH_CLASS
def test_a_request_that_ends_by_itself_makes_room(scheduler_class: type[Any]) -> None:
    scheduler = make_full(scheduler_class)
    while "d0" in scheduler.requests:
        assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    assert step(scheduler).num_tokens == {"w0": 5}


@EACH_CLASS
def test_an_arrival_in_an_empty_queue_is_seen(scheduler_class: type[Any]) -> None:
    scheduler = make_scheduler(scheduler_class)
    scheduler.add_request(make_request("d", max_tokens=30))
    for _ in range(4):
        step(scheduler)
    scheduler.add_request(make_request("new"))
    assert step(scheduler).num_tokens == {"new": 5}
    assert scheduler.last_stats.num_hidden == 1
    assert step(scheduler).num_tokens == {"d": 1, "new": 1}
    assert scheduler.last_stats.num_hidden == 0


@EACH_CLASS
def test_a_reason_goes_with_the_head_that_it_held(scheduler_class: type[Any]) -> None:
    scheduler = make_full(scheduler_class)
    assert scheduler.last_stats.hold_reason is HoldReason.SLOTS
    scheduler.finish_requests(["w0", "w1"], RequestStatus.FINISHED_ABORTED)
    assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    assert scheduler.last_stats.num_waiting == 0
    assert scheduler.last_stats.hold_reason is None


def test_another_head_is_asked_for_itself() -> None:
    # 21 usable blocks, 20 of them promised to the two that run: the small prompt fits, the large
    # one before it does not.
    scheduler = make_scheduler(NeuronScheduler, max_num_seqs=3, num_blocks=22)
    add_requests(scheduler, make_request("d0", max_tokens=30), make_request("d1", max_tokens=37))
    for _ in range(3):
        step(scheduler)
    add_requests(scheduler, make_request("large", 20), make_request("small", 3, max_tokens=1))
    for _ in range(3):
        assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    scheduler.finish_requests("large", RequestStatus.FINISHED_ABORTED)
    assert step(scheduler).num_tokens == {"small": 3}


def test_a_head_held_by_an_overridden_can_schedule_is_asked_in_every_step() -> None:
    class ClosesAndOpens(NeuronScheduler):
        is_open = True

        def can_schedule(self, request: Request) -> bool:
            return super().can_schedule(request) and self.is_open

    scheduler = make_scheduler(ClosesAndOpens)
    scheduler.add_request(make_request("d", max_tokens=30))
    step(scheduler)
    scheduler.is_open = False
    scheduler.add_request(make_request("w"))
    for _ in range(3):
        assert step(scheduler).num_tokens == {"d": 1}
    scheduler.is_open = True
    assert step(scheduler).num_tokens == {"w": 5}


@EACH_CLASS
def test_queues_are_restored_when_a_decode_fails(scheduler_class: type[Any]) -> None:
    class Fails(scheduler_class):  # type: ignore[misc]
        is_broken = False

        def _check_phases(self, scheduler_output: Any) -> None:
            if self.is_broken:
                raise ZeroDivisionError
            super()._check_phases(scheduler_output)

    scheduler = make_full(Fails)
    step(scheduler)
    running, waiting = [*scheduler.running], [*scheduler.waiting]
    scheduler.is_broken = True
    with pytest.raises(ZeroDivisionError):
        scheduler.schedule()
    assert (scheduler.running, [*scheduler.waiting]) == (running, waiting)
    assert not scheduler.holdback_queue
    scheduler.is_broken = False
    assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}


@EACH_CLASS
def test_a_request_removed_from_the_list_itself_makes_room(scheduler_class: type[Any]) -> None:
    scheduler = make_full(scheduler_class)
    for _ in range(3):
        assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    running = scheduler.running
    abort_in_place(scheduler, "d0")
    assert scheduler.running is running
    assert [step(scheduler).num_tokens for _ in range(2)] == [{"w0": 5}, {"d1": 1, "w0": 1}]


@EACH_CLASS
def test_a_step_in_flight_keeps_its_requests_when_one_is_removed_from_the_list(
    scheduler_class: type[Any],
) -> None:
    scheduler = make_full(scheduler_class)
    output = scheduler.schedule()
    abort_in_place(scheduler, "d0")
    result = ModelRunnerOutput(["d0", "d1"], [[7], [8]])
    outputs = scheduler.update_from_output(output, result)
    assert [(o.request_id, o.new_token_ids) for o in outputs] == [("d1", [8])]
    assert step(scheduler).num_tokens == {"w0": 5}
    scheduler.kv_cache_manager.check_integrity()


def changes_in_place(scheduler_class: type[Any]) -> type[Any]:
    """Return the scheduler with requests that end taken out of the list that `running` was."""

    class ChangesInPlace(scheduler_class):  # type: ignore[misc]
        def update_from_output(self, *args: Any) -> Any:
            running = self.running
            outputs = super().update_from_output(*args)
            remove_ended(self, running)
            return outputs

        def finish_requests(self, *args: Any) -> Any:
            running = self.running
            ended = super().finish_requests(*args)
            remove_ended(self, running)
            return ended

    return ChangesInPlace


@EACH_CLASS
def test_streams_run_as_ever_when_requests_leave_the_list_itself(
    scheduler_class: type[Any],
) -> None:
    for seed in range(150):
        run_stream(seed, changes_in_place(scheduler_class))


class TrustsTheList(changes_in_place(NeuronScheduler)):  # type: ignore[misc]
    """Does not ask the head of the queue again while `running` is the same list."""

    asked: Any = None

    def _admit_from_holdback(self) -> None:
        head = self.holdback_queue[0] if self.holdback_queue else None
        if self.asked and self.running is self.asked[0] and head is self.asked[1]:
            return
        super()._admit_from_holdback()
        self.asked = None if self.waiting else (self.running, head)


class SharesTheList(changes_in_place(NeuronAsyncScheduler)):  # type: ignore[misc]
    """Takes `running` itself for the requests of a step in flight, if all are in it."""

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        if len(self.running) == len(scheduler_output.num_scheduled_tokens):
            self._in_flight[-1] = scheduler_output, self.running


@pytest.mark.parametrize("scheduler_class", [TrustsTheList, SharesTheList])
def test_a_scheduler_that_takes_the_same_list_for_the_same_requests_is_found(
    scheduler_class: type[Any],
) -> None:
    find_fault(scheduler_class)
