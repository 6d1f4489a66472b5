"""The base scheduler against vLLM's behaviour: no phases, no holdback, no preemption."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_factory import (
    EOS_TOKEN_ID,
    add_requests,
    make_base,
    make_request,
    run_to_end,
    step,
)

from neuron_llm.errors import OutOfBlocksError, RequestError
from neuron_llm.scheduler import (
    EngineCoreOutput,
    FinishReason,
    ModelRunnerOutput,
    RequestStatus,
)

ABORTED = RequestStatus.FINISHED_ABORTED


def test_added_requests_wait_in_order() -> None:
    scheduler = make_base()
    for index in range(10):
        scheduler.add_request(make_request(f"r{index}"))
        assert len(scheduler.waiting) == len(scheduler.requests) == index + 1
    assert list(scheduler.requests) == [r.request_id for r in scheduler.waiting]


def test_a_refused_request_enters_no_queue() -> None:
    scheduler = make_base()
    with pytest.raises(RequestError):
        scheduler.add_request(make_request(prompt=[]))
    assert not scheduler.requests and not scheduler.waiting


def test_an_id_is_refused_while_its_request_lives_and_free_again_afterwards() -> None:
    scheduler = make_base()
    scheduler.add_request(make_request("same"))
    with pytest.raises(RequestError) as caught:
        scheduler.add_request(make_request("same"))
    assert caught.value.code == "duplicate_request_id"
    run_to_end(scheduler)
    scheduler.add_request(make_request("same"))
    assert run_to_end(scheduler)[0].num_tokens == {"same": 5}


def test_everything_that_fits_is_scheduled_at_once() -> None:
    scheduler = make_base()
    add_requests(scheduler, *(make_request(f"r{i}", prompt_len=10) for i in range(10)))
    output = scheduler.schedule()
    assert [new.req_id for new in output.scheduled_new_reqs] == [f"r{i}" for i in range(10)]
    assert output.scheduled_cached_reqs.num_reqs == 0
    assert output.num_scheduled_tokens == {f"r{i}": 10 for i in range(10)}
    assert output.total_num_scheduled_tokens == 100
    assert output.num_scheduled_tokens_padded is None
    assert [r.request_id for r in scheduler.running] == [f"r{i}" for i in range(10)]


def test_a_prompt_past_the_budget_is_chunked_beside_decodes() -> None:
    scheduler = make_base()
    add_requests(scheduler, *(make_request(f"r{i}", prompt_len=800) for i in range(3)))
    assert step(scheduler).num_tokens == {"r0": 800, "r1": 224}
    second = step(scheduler)
    assert second.num_tokens == {"r0": 1, "r1": 576, "r2": 447}
    assert second.scheduled.scheduled_cached_reqs.num_computed_tokens == [800, 224]
    assert second.scheduled.scheduled_cached_reqs.num_output_tokens == [1, 0]
    assert step(scheduler).num_tokens == {"r0": 1, "r1": 1, "r2": 353}


def test_short_prompts_do_not_overtake_a_long_one() -> None:
    scheduler = make_base(max_num_seqs=3)
    add_requests(
        scheduler,
        *(make_request(f"r{i}", prompt_len=n) for i, n in enumerate([800, 800, 10, 10])),
    )
    assert step(scheduler).num_tokens == {"r0": 800, "r1": 224}


def test_a_partial_chunk_yields_no_output() -> None:
    scheduler = make_base(max_num_batched_tokens=16)
    scheduler.add_request(make_request(prompt_len=20, max_tokens=1))
    assert step(scheduler).outputs == []
    last = step(scheduler)
    assert last.num_tokens == {"r0": 4}
    assert last.outputs == [EngineCoreOutput("r0", [7], finish_reason=FinishReason.LENGTH)]


def test_a_second_step_before_the_first_output_schedules_only_what_is_known() -> None:
    scheduler = make_base(max_num_batched_tokens=512)
    add_requests(scheduler, make_request("a", prompt_len=512), make_request("b", prompt_len=512))
    first, second = scheduler.schedule(), scheduler.schedule()
    assert first.num_scheduled_tokens == {"a": 512}
    assert second.num_scheduled_tokens == {"b": 512}
    scheduler.update_from_output(first, ModelRunnerOutput(["a"], [[7]]))
    assert scheduler.schedule().num_scheduled_tokens == {"a": 1}


def test_the_runner_may_answer_in_any_order() -> None:
    scheduler = make_base()
    add_requests(scheduler, make_request("a"), make_request("b"))
    output = scheduler.schedule()
    outputs = scheduler.update_from_output(output, ModelRunnerOutput(["b", "a"], [[8], [9]]))
    assert [(o.request_id, o.new_token_ids) for o in outputs] == [("a", [9]), ("b", [8])]


@pytest.mark.parametrize(
    ("fields", "token_ids", "output", "status"),
    [
        (
            {"eos_token_ids": frozenset({EOS_TOKEN_ID})},
            [10, EOS_TOKEN_ID, 12],
            EngineCoreOutput("r0", [10, EOS_TOKEN_ID], finish_reason=FinishReason.STOP),
            RequestStatus.FINISHED_STOPPED,
        ),
        (
            {"stop_token_ids": frozenset({42})},
            [10, 42, 12],
            EngineCoreOutput("r0", [10, 42], finish_reason=FinishReason.STOP, stop_reason=42),
            RequestStatus.FINISHED_STOPPED,
        ),
        (
            {"max_tokens": 2},
            [10, 11, 12],
            EngineCoreOutput("r0", [10, 11], finish_reason=FinishReason.LENGTH),
            RequestStatus.FINISHED_LENGTH_CAPPED,
        ),
        (
            {"eos_token_ids": frozenset({EOS_TOKEN_ID}), "ignore_eos": True},
            [10, EOS_TOKEN_ID, 12],
            EngineCoreOutput("r0", [10, EOS_TOKEN_ID, 12]),
            RequestStatus.RUNNING,
        ),
        (
            {"eos_token_ids": frozenset({EOS_TOKEN_ID}), "min_tokens": 4},
            [10, EOS_TOKEN_ID, 12],
            EngineCoreOutput("r0", [10, EOS_TOKEN_ID, 12]),
            RequestStatus.RUNNING,
        ),
    ],
)
def test_tokens_after_the_one_that_ends_a_request_are_dropped(
    fields: dict[str, Any], token_ids: list[int], output: EngineCoreOutput, status: RequestStatus
) -> None:
    scheduler = make_base()
    request = make_request(**{"max_tokens": 9, **fields})
    scheduler.add_request(request)
    scheduled = scheduler.schedule()
    runner_output = ModelRunnerOutput(["r0"], [token_ids])
    assert scheduler.update_from_output(scheduled, runner_output) == [output]
    assert request.status is status
    assert list(request.output_token_ids) == output.new_token_ids
    assert scheduler.has_unfinished_requests() is (not status.is_finished)


def test_the_head_waits_for_blocks_and_runs_when_they_are_freed() -> None:
    scheduler = make_base(block_size=4, num_blocks=10, enable_prefix_caching=False)
    add_requests(
        scheduler,
        make_request("a", prompt_len=24, max_tokens=1),
        make_request("b", prompt_len=24, max_tokens=1),
        make_request("c", prompt_len=4, max_tokens=1),
    )
    # Neither does the small one overtake the head.
    assert step(scheduler).num_tokens == {"a": 24}
    assert step(scheduler).num_tokens == {"b": 24, "c": 4}
    assert scheduler.kv_cache_manager.num_free_blocks == 9


def test_a_running_request_that_cannot_grow_is_an_error_and_preempts_nobody() -> None:
    scheduler = make_base(num_blocks=11)
    add_requests(scheduler, make_request("a", prompt_len=80), make_request("b", prompt_len=80))
    assert step(scheduler).num_tokens == {"a": 80, "b": 80}
    with pytest.raises(OutOfBlocksError, match="request `a` cannot grow by 1 tokens: 0 KV blocks"):
        scheduler.schedule()
    assert [r.request_id for r in scheduler.running] == ["a", "b"]


def test_a_prompt_starts_only_when_all_of_it_fits() -> None:
    scheduler = make_base(max_num_batched_tokens=32, num_blocks=8)
    add_requests(scheduler, make_request("a", prompt_len=32), make_request("b", prompt_len=90))
    step(scheduler)
    assert step(scheduler).num_tokens == {"a": 1}


def test_new_requests_come_in_full_and_known_ones_as_a_difference() -> None:
    scheduler = make_base(block_size=4)
    scheduler.add_request(make_request("a", prompt=[1, 2, 3, 4, 5, 6, 7]))
    new = step(scheduler).scheduled.scheduled_new_reqs[0]
    assert (new.req_id, list(new.prompt_token_ids)) == ("a", [1, 2, 3, 4, 5, 6, 7])
    assert (new.block_ids, new.num_computed_tokens) == ([1, 2], 0)
    cached = [step(scheduler).scheduled.scheduled_cached_reqs for _ in range(2)]
    assert [c.req_ids for c in cached] == [["a"], ["a"]]
    assert [c.new_block_ids for c in cached] == [[[]], [[3]]]
    assert [c.num_computed_tokens for c in cached] == [[7], [8]]
    assert [c.num_output_tokens for c in cached] == [[1], [2]]


def test_two_equal_prompts_in_one_step_share_blocks() -> None:
    scheduler = make_base()
    prompt = list(range(100))
    add_requests(scheduler, make_request("a", prompt=prompt), make_request("b", prompt=prompt))
    output = scheduler.schedule()
    assert output.num_scheduled_tokens == {"a": 100, "b": 4}
    assert output.scheduled_new_reqs[1].num_computed_tokens == 96


def test_the_prefix_cache_is_reset_only_when_idle() -> None:
    scheduler = make_base()
    scheduler.add_request(make_request("a", prompt=list(range(40)), max_tokens=2))
    step(scheduler)
    assert not scheduler.reset_prefix_cache()
    run_to_end(scheduler)
    assert scheduler.reset_prefix_cache()
    scheduler.add_request(make_request("b", prompt=list(range(40))))
    assert step(scheduler).num_tokens == {"b": 40}


def test_outputs_out_of_order_are_noticed() -> None:
    scheduler = make_base()
    scheduler.add_request(make_request("a"))
    scheduler.schedule()
    add_requests(scheduler, make_request("b"), make_request("c"))
    later = scheduler.schedule()
    with pytest.raises(AssertionError, match="out of order"):
        scheduler.update_from_output(later, ModelRunnerOutput(["b", "c"], [[7], [7]]))
