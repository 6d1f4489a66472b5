"""A decode of the same requests is decided once, and anew as soon as it could be another step."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_factory import add_requests, make_request, make_scheduler, step
from streams import BOTH_CLASSES

from neuron_llm.scheduler import (
    HoldReason,
    NeuronScheduler,
    Request,
    RequestStatus,
    SchedulerState,
)

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)


class CountsQuestions(NeuronScheduler):
    num_questions = 0

    def can_schedule(self, request: Request) -> bool:
        self.num_questions += 1
        return super().can_schedule(request)


def make_full(scheduler_class: type[Any], **changes: Any) -> Any:
    """Return a scheduler in which `d0` and `d1` decode and `w0` and `w1` are held back."""
    scheduler = make_scheduler(scheduler_class, **{"max_num_seqs": 2, **changes})
    add_requests(scheduler, make_request("d0", max_tokens=30), make_request("d1", max_tokens=40))
    step(scheduler)
    step(scheduler)
    add_requests(scheduler, make_request("w0"), make_request("w1"))
    step(scheduler)
    return scheduler


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({}, HoldReason.SLOTS), ({"max_num_seqs": 3, "num_blocks": 22}, HoldReason.KV)],
)
def test_a_held_head_is_asked_once_and_again_when_a_request_ends(
    changes: dict[str, Any], reason: HoldReason
) -> None:
    scheduler = make_full(CountsQuestions, **changes)
    num_questions = scheduler.num_questions
    for _ in range(5):
        assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
        assert scheduler.last_stats.hold_reason is reason
        assert scheduler.last_stats.num_waiting == 2
    assert scheduler.num_questions == num_questions
    scheduler.finish_requests("d0", RequestStatus.FINISHED_ABORTED)
    assert step(scheduler).num_tokens == {"w0": 5}


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
    class ClosesAndOpens(CountsQuestions):
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
def test_queues_are_restored_when_a_repeated_decode_fails(scheduler_class: type[Any]) -> None:
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


def test_a_step_in_flight_keeps_its_requests_while_others_come_and_go() -> None:
    scheduler = make_scheduler(NeuronScheduler)
    add_requests(scheduler, make_request("a", max_tokens=30))
    step(scheduler)
    before = scheduler.running
    scheduler.add_request(make_request("b"))
    step(scheduler)
    assert [r.request_id for r in before] == ["a"]
    assert [r.request_id for r in scheduler.running] == ["a", "b"]


def test_decodes_have_their_counts_as_padded_counts() -> None:
    scheduler = make_full(NeuronScheduler)
    output = step(scheduler).scheduled
    assert output.num_scheduled_tokens_padded == {"d0": 1, "d1": 1}
    assert scheduler.state is SchedulerState.ACTIVE_DECODE
    assert scheduler.last_stats.num_padded_tokens == 2
