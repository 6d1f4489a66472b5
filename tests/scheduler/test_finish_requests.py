"""How requests leave the base scheduler, and what is left of them."""

from __future__ import annotations

import pytest
from scheduler_factory import add_requests, make_base, make_request, run_to_end, step

from neuron_llm.scheduler import FinishReason, ModelRunnerOutput, RequestStatus

ABORTED = RequestStatus.FINISHED_ABORTED


def test_one_of_two_requests_ends_and_the_other_goes_on() -> None:
    scheduler = make_base()
    add_requests(scheduler, make_request("a", max_tokens=1), make_request("b"))
    outputs = step(scheduler).outputs
    assert [o.finish_reason for o in outputs] == [FinishReason.LENGTH, None]
    assert [r.request_id for r in scheduler.running] == ["b"]
    following = scheduler.schedule()
    assert following.finished_req_ids == {"a"}
    assert following.num_scheduled_tokens == {"b": 1}


def test_five_requests_leave_nothing_behind() -> None:
    scheduler = make_base()
    add_requests(scheduler, *(make_request(f"r{i}", prompt_len=100) for i in range(5)))
    steps = run_to_end(scheduler)
    ends = [o.request_id for s in steps for o in s.outputs if o.finish_reason]
    assert sorted(ends) == [f"r{i}" for i in range(5)]
    assert not scheduler.requests and not scheduler.waiting and not scheduler.running
    assert not scheduler.finished_req_ids
    assert scheduler.kv_cache_manager.num_free_blocks == 999
    scheduler.kv_cache_manager.check_integrity()


def test_aborting_waiting_requests_takes_them_out_of_the_queue() -> None:
    scheduler = make_base()
    add_requests(scheduler, *(make_request(f"r{i}") for i in range(4)))
    assert scheduler.finish_requests(["r1", "unknown", "r1"], ABORTED) == ["r1"]
    assert [r.request_id for r in scheduler.waiting] == ["r0", "r2", "r3"]
    assert scheduler.finish_requests("r0", ABORTED) == ["r0"]
    assert scheduler.finish_requests("r0", ABORTED) == []
    assert scheduler.finish_requests(None, ABORTED) == ["r2", "r3"]
    assert not scheduler.has_unfinished_requests() and not scheduler.waiting


def test_aborting_a_running_request_frees_its_blocks_and_drops_its_late_token() -> None:
    scheduler = make_base()
    request = make_request("a")
    add_requests(scheduler, request, make_request("b"))
    output = scheduler.schedule()
    scheduler.finish_requests("a", ABORTED)
    assert request.status is ABORTED
    assert scheduler.kv_cache_manager.num_free_blocks == 998
    outputs = scheduler.update_from_output(output, ModelRunnerOutput(["a", "b"], [[7], [8]]))
    assert [o.request_id for o in outputs] == ["b"]
    assert request.num_output_tokens == 0


def test_a_late_token_does_not_reach_the_next_owner_of_the_id() -> None:
    scheduler = make_base()
    scheduler.add_request(make_request("same"))
    output = scheduler.schedule()
    scheduler.finish_requests("same", ABORTED)
    successor = make_request("same", prompt_len=9)
    scheduler.add_request(successor)
    following = scheduler.schedule()
    assert following.finished_req_ids == {"same"}
    assert [new.req_id for new in following.scheduled_new_reqs] == ["same"]
    assert scheduler.update_from_output(output, ModelRunnerOutput(["same"], [[1]])) == []
    scheduler.update_from_output(following, ModelRunnerOutput(["same"], [[2]]))
    assert list(successor.output_token_ids) == [2]


def test_a_finish_needs_a_finished_status() -> None:
    with pytest.raises(AssertionError):
        make_base().finish_requests(None, RequestStatus.RUNNING)


def test_one_more_step_tells_the_runner_who_has_finished() -> None:
    scheduler = make_base()
    scheduler.add_request(make_request("a", max_tokens=1))
    step(scheduler)
    assert not scheduler.has_unfinished_requests()
    output = scheduler.schedule()
    assert output.finished_req_ids == {"a"}
    assert output.total_num_scheduled_tokens == 0
    assert scheduler.update_from_output(output, ModelRunnerOutput([], [])) == []
    assert not scheduler.finished_req_ids and not scheduler.schedule().finished_req_ids
    assert output.finished_req_ids == {"a"}, "an output does not change after it was handed out"
