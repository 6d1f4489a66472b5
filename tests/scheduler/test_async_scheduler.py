from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from scheduler_factory import (
    EOS_TOKEN_ID,
    add_requests,
    has_anything_to_say,
    make_request,
    make_scheduler,
    run_step,
)

from neuron_llm.scheduler import (
    AsyncScheduler,
    EngineCoreOutput,
    ModelRunnerOutput,
    NeuronAsyncScheduler,
    RequestStatus,
    Scheduler,
    SchedulerOutput,
)


class Pipeline:
    """Keeps some steps in flight before it takes in the oldest."""

    def __init__(self, scheduler: Scheduler, num_in_flight: int) -> None:
        self.scheduler = scheduler
        self.num_in_flight = num_in_flight
        self.in_flight: deque[SchedulerOutput] = deque()
        self.scheduled: list[SchedulerOutput] = []
        self.outputs: list[EngineCoreOutput] = []

    def step(self, token_id: int = 7) -> SchedulerOutput:
        output = self.scheduler.schedule()
        self.scheduled.append(output)
        self.in_flight.append(output)
        if len(self.in_flight) >= self.num_in_flight or not output.num_scheduled_tokens:
            oldest = self.in_flight.popleft()
            result = run_step(oldest, self.scheduler, token_id)
            self.outputs += self.scheduler.update_from_output(oldest, result)
        return output

    def run_to_end(self) -> None:
        while has_anything_to_say(self.scheduler):
            self.step()

    @property
    def total_num_tokens(self) -> int:
        return sum(output.total_num_scheduled_tokens for output in self.scheduled)


def make_async(**changes: Any) -> AsyncScheduler:
    return make_scheduler(AsyncScheduler, max_num_batched_tokens=64, **changes)


@pytest.mark.parametrize("num_in_flight", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5])
def test_no_step_is_scheduled_past_max_tokens(max_tokens: int, num_in_flight: int) -> None:
    pipeline = Pipeline(make_async(), num_in_flight)
    requests = [make_request(f"r{i}", prompt_len=10, max_tokens=max_tokens) for i in range(2)]
    add_requests(pipeline.scheduler, *requests)
    pipeline.run_to_end()
    assert all(list(request.output_token_ids) == [7] * max_tokens for request in requests)
    assert all(request.num_output_placeholders == 0 for request in requests)
    assert pipeline.total_num_tokens == 2 * (10 + max_tokens - 1)


@pytest.mark.parametrize("scheduler_class", [AsyncScheduler, NeuronAsyncScheduler])
def test_no_position_past_max_model_len_is_computed(scheduler_class: type[AsyncScheduler]) -> None:
    pipeline = Pipeline(make_scheduler(scheduler_class), num_in_flight=2)
    request = make_request(prompt_len=60, max_tokens=30)
    pipeline.scheduler.add_request(request)
    pipeline.run_to_end()
    assert request.num_tokens == 64
    assert pipeline.total_num_tokens == 63


def test_a_token_in_flight_is_scheduled_as_a_placeholder() -> None:
    scheduler = make_async()
    request = make_request(prompt_len=10)
    scheduler.add_request(request)
    first = scheduler.schedule()
    assert request.num_output_placeholders == 1
    second = scheduler.schedule()
    assert second.num_scheduled_tokens == {"r0": 1}
    assert second.scheduled_cached_reqs.num_computed_tokens == [10]
    assert second.scheduled_cached_reqs.num_output_tokens == [1]
    assert request.num_output_placeholders == 2
    scheduler.update_from_output(first, ModelRunnerOutput(["r0"], [[7]]))
    assert (request.num_output_placeholders, request.num_output_tokens) == (1, 1)


def test_a_prefill_chunk_that_is_not_the_last_expects_no_token() -> None:
    scheduler = make_scheduler(AsyncScheduler, max_num_batched_tokens=8)
    request = make_request(prompt_len=20)
    scheduler.add_request(request)
    placeholders = []
    for _ in range(4):
        scheduler.schedule()
        placeholders.append(request.num_output_placeholders)
    assert placeholders == [0, 0, 1, 2]


def test_an_eos_found_late_costs_one_slot_whose_token_is_dropped() -> None:
    scheduler = make_async()
    request = make_request(max_tokens=9, eos_token_ids=frozenset({EOS_TOKEN_ID}))
    scheduler.add_request(request)
    first, second = scheduler.schedule(), scheduler.schedule()
    eos, late = ModelRunnerOutput(["r0"], [[EOS_TOKEN_ID]]), ModelRunnerOutput(["r0"], [[9]])
    (output,) = scheduler.update_from_output(first, eos)
    assert output.finish_reason == "stop"
    assert scheduler.update_from_output(second, late) == []
    assert list(request.output_token_ids) == [EOS_TOKEN_ID]
    assert scheduler.kv_cache_manager.num_free_blocks == 64
    scheduler.kv_cache_manager.check_integrity()


def test_ten_requests_aborted_one_per_step_keep_what_they_had() -> None:
    pipeline = Pipeline(make_async(max_num_seqs=10), num_in_flight=2)
    requests = [make_request(f"r{i}", prompt_len=5, max_tokens=20) for i in range(10)]
    add_requests(pipeline.scheduler, *requests)
    pipeline.step()
    for request in requests:
        pipeline.step()
        aborted = pipeline.scheduler.finish_requests(
            request.request_id, RequestStatus.FINISHED_ABORTED
        )
        assert aborted == [request.request_id]
    pipeline.run_to_end()
    assert [request.num_output_tokens for request in requests] == list(range(1, 11))
    assert pipeline.scheduler.kv_cache_manager.num_free_blocks == 64


def test_equal_prompts_in_one_step_share_all_full_blocks() -> None:
    scheduler = make_scheduler(
        AsyncScheduler, max_num_batched_tokens=200, max_model_len=200, block_size=16
    )
    prompt = list(range(100))
    add_requests(scheduler, make_request("a", prompt=prompt), make_request("b", prompt=prompt))
    assert scheduler.schedule().num_scheduled_tokens == {"a": 100, "b": 4}


@pytest.mark.parametrize("num_in_flight", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [101, 91, 90, 89])
def test_the_next_turn_of_a_conversation_hits_every_full_block(
    max_tokens: int, num_in_flight: int
) -> None:
    scheduler = make_scheduler(
        AsyncScheduler, max_num_batched_tokens=512, max_model_len=512, block_size=16
    )
    first = make_request("a", prompt_len=200, max_tokens=max_tokens)
    scheduler.add_request(first)
    Pipeline(scheduler, num_in_flight).run_to_end()
    second = make_request("b", prompt=[*first.all_token_ids])
    scheduler.add_request(second)
    scheduler.schedule()
    assert second.num_cached_tokens == (200 + max_tokens - 1) // 16 * 16 == 288
