"""What the holdback logic refuses: mixed batches, missing buckets, and standing still."""

from __future__ import annotations

import pytest
from scheduler_factory import add_requests, make_request, make_scheduler, step

from neuron_llm.errors import NoBucketError, NoProgressError
from neuron_llm.scheduler import HoldReason, ModelRunnerOutput, NeuronScheduler, Request


def ids(queue: list[Request]) -> list[str]:
    return [request.request_id for request in queue]


def test_a_mixed_batch_is_refused_before_its_counters_move() -> None:
    class ShowsAll(NeuronScheduler):
        def _hide_other_phase(self) -> None:
            pass

    scheduler = make_scheduler(ShowsAll)
    decode, prefill = make_request("d", max_tokens=9), make_request("p")
    scheduler.add_request(decode)
    step(scheduler)
    scheduler.add_request(prefill)
    with pytest.raises(RuntimeError, match="not 1 prefills and 1 decodes"):
        scheduler.schedule()
    assert (decode.num_computed_tokens, prefill.num_computed_tokens) == (5, 0)
    assert ids(scheduler.running) == ["d", "p"] and not scheduler.holdback_queue
    assert not scheduler._in_flight


def test_two_prefills_in_a_step_are_refused() -> None:
    class AdmitsTwo(NeuronScheduler):
        def _find_hold_reason(self, request: Request) -> HoldReason | None:
            return None

    scheduler = make_scheduler(AdmitsTwo)
    add_requests(scheduler, make_request("a"), make_request("b"))
    with pytest.raises(RuntimeError, match="not 2 prefills and 0 decodes"):
        scheduler.schedule()


def test_a_chunk_without_a_bucket_is_an_error_and_not_the_largest_bucket() -> None:
    scheduler = make_scheduler(NeuronScheduler)
    scheduler.num_batched_tokens_buckets = (8,)
    scheduler.add_request(make_request(prompt_len=9))
    with pytest.raises(NoBucketError, match=r"no bucket holds 9 \(largest: 8\)"):
        scheduler.schedule()


def test_a_request_held_for_ever_is_an_error_that_names_it_and_its_reason() -> None:
    class DefersForEver(NeuronScheduler):
        def _find_hold_reason(self, request: Request) -> HoldReason | None:
            return HoldReason.KV

    scheduler = make_scheduler(DefersForEver)
    add_requests(scheduler, *(make_request(f"r{i}", prompt_len=8) for i in range(10)))
    with pytest.raises(NoProgressError) as caught:
        scheduler.schedule()
    assert caught.value.message == (
        "nothing can be scheduled and no step is in flight; `r0` waits: too few free KV blocks "
        "(3 blocks needed, 0 of them shared, 64 free, 0 promised to running requests); running "
        "[], waiting ['r0', 'r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7'] of 10"
    )
    assert len(scheduler.waiting) == 10


def test_an_overridden_can_schedule_is_obeyed() -> None:
    class Closed(NeuronScheduler):
        def can_schedule(self, request: Request) -> bool:
            return False

    scheduler = make_scheduler(Closed)
    scheduler.add_request(make_request())
    with pytest.raises(NoProgressError, match="`r0` waits: not scheduled"):
        scheduler.schedule()


def test_a_running_request_that_cannot_go_on_is_an_error_too() -> None:
    scheduler = make_scheduler(NeuronScheduler)
    request = make_request("stuck")
    scheduler.add_request(request)
    step(scheduler)
    request.num_computed_tokens = request.num_tokens
    with pytest.raises(NoProgressError, match=r"no request waits; running \['stuck'\]"):
        scheduler.schedule()


def test_an_empty_step_is_no_error_while_an_output_is_to_come() -> None:
    scheduler = make_scheduler(NeuronScheduler)
    scheduler.add_request(make_request())
    output = scheduler.schedule()
    assert scheduler.schedule().total_num_scheduled_tokens == 0
    scheduler.update_from_output(output, ModelRunnerOutput(["r0"], [[7]]))
    assert scheduler.schedule().num_scheduled_tokens == {"r0": 1}
