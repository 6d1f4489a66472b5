"""Every arrow between the states, judged by the counts from before the step; and who may start."""

from __future__ import annotations

import pytest
from scheduler_factory import add_requests, make_neuron, make_request, make_scheduler, run_step
from streams import BOTH_CLASSES

from neuron_llm.scheduler import HoldReason, NeuronScheduler, SchedulerState

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
IDLE, PREFILL, DECODE = (
    SchedulerState.IDLE,
    SchedulerState.ACTIVE_PREFILL,
    SchedulerState.ACTIVE_DECODE,
)


def next_state(scheduler: NeuronScheduler) -> SchedulerState:
    """Schedule, read the state at once, and only then finish the step."""
    output = scheduler.schedule()
    state = scheduler.state
    scheduler.update_from_output(output, run_step(output, scheduler, 7))
    return state


@EACH_CLASS
def test_without_requests_the_scheduler_stays_idle(scheduler_class: type[NeuronScheduler]) -> None:
    scheduler = make_scheduler(scheduler_class)
    assert [scheduler.state, next_state(scheduler), next_state(scheduler)] == [IDLE] * 3


@EACH_CLASS
def test_a_prompt_is_prefill_up_to_its_last_chunk_and_decode_after_it(
    scheduler_class: type[NeuronScheduler],
) -> None:
    scheduler = make_scheduler(scheduler_class)
    request = make_request(prompt_len=37, max_tokens=3)
    scheduler.add_request(request)
    seen = []
    for _ in range(6):
        output = scheduler.schedule()
        seen.append((request.num_computed_tokens, scheduler.state))
        scheduler.update_from_output(output, run_step(output, scheduler, 7))
    # In the third step the request's own count says already that its prompt is computed.
    assert seen == [
        *[(16, PREFILL), (32, PREFILL), (37, PREFILL)],
        *[(38, DECODE), (39, DECODE), (39, IDLE)],
    ]


@EACH_CLASS
def test_a_prefill_of_one_token_is_a_prefill(scheduler_class: type[NeuronScheduler]) -> None:
    scheduler = make_scheduler(scheduler_class)
    for _ in range(2):
        scheduler.add_request(make_request("same", 5, max_tokens=1))
        output = scheduler.schedule()
        assert scheduler.state is PREFILL
        scheduler.update_from_output(output, run_step(output, scheduler, 7))
    # The second time four of the five tokens were cached.
    assert output.num_scheduled_tokens == {"same": 1}
    assert output.num_scheduled_tokens_padded == {"same": 8}
    assert next_state(scheduler) is IDLE


@EACH_CLASS
def test_prefill_follows_prefill_while_slots_are_free_and_prompts_wait(
    scheduler_class: type[NeuronScheduler],
) -> None:
    scheduler = make_scheduler(scheduler_class, max_num_seqs=2)
    add_requests(scheduler, *(make_request(f"r{i}", 5, max_tokens=2 + i) for i in range(3)))
    # Two prompts take the slots; the third starts as soon as the first of them has ended.
    states = [next_state(scheduler) for _ in range(8)]
    assert states == [PREFILL, PREFILL, DECODE, PREFILL, DECODE, DECODE, DECODE, IDLE]


@EACH_CLASS
def test_a_decode_with_a_free_slot_gives_way_to_a_new_prompt(
    scheduler_class: type[NeuronScheduler],
) -> None:
    scheduler = make_scheduler(scheduler_class)
    scheduler.add_request(make_request("a", 5, max_tokens=9))
    assert [next_state(scheduler) for _ in range(2)] == [PREFILL, DECODE]
    scheduler.add_request(make_request("b", 20, max_tokens=9))
    assert [next_state(scheduler) for _ in range(3)] == [PREFILL, PREFILL, DECODE]


@EACH_CLASS
def test_a_decode_without_a_free_slot_goes_on(scheduler_class: type[NeuronScheduler]) -> None:
    scheduler = make_scheduler(scheduler_class, max_num_seqs=1)
    scheduler.add_request(make_request("a", 5, max_tokens=4))
    scheduler.add_request(make_request("b", 5, max_tokens=2))
    states = [next_state(scheduler) for _ in range(7)]
    assert states == [PREFILL, DECODE, DECODE, DECODE, PREFILL, DECODE, IDLE]


def test_what_keeps_a_request_back_is_found_in_four_steps() -> None:
    # `a` takes 15 of the 16 blocks, so that no step would let `w` start beside it.
    w = make_request("w", 20)

    def reason(num_steps: int, **changes: int) -> tuple[bool, HoldReason | None]:
        scheduler = make_neuron(num_blocks=17, enable_prefix_caching=False, **changes)
        scheduler.add_request(make_request("a", 40, max_tokens=20))
        for _ in range(num_steps):
            next_state(scheduler)
        if num_steps < 4:
            scheduler.add_request(make_request("b", 1))
        return scheduler.can_schedule(w), scheduler._find_hold_reason(w)

    # Between two chunks of `a`, with `b` in front: all four hold.
    assert reason(1, max_num_seqs=1) == (False, HoldReason.SLOTS)
    assert reason(1) == (False, HoldReason.PREFILL_RUNNING)
    # `a` decodes.
    assert reason(3) == (False, HoldReason.PREFILL_BATCH)
    assert reason(4) == (False, HoldReason.KV)
    # `a` has ended.
    assert reason(40) == (True, None)


def test_one_line_tells_the_state_the_queues_the_blocks_the_padding_and_the_hits() -> None:
    scheduler = make_neuron(max_num_seqs=2)
    add_requests(
        scheduler,
        make_request("a", prompt=range(9), max_tokens=2),
        make_request("b", prompt=range(11), max_tokens=2),
        make_request("c"),
    )
    lines = []
    for _ in range(3):
        output = scheduler.schedule()
        lines.append(str(scheduler.last_stats))
        scheduler.update_from_output(output, run_step(output, scheduler, 7))
    assert lines == [
        "active_prefill, tokens 9 in 16, running 1 (0 hidden), waiting 2 (one prompt per step), "
        "free blocks 61, prefix hits 0 of 9",
        "active_prefill, tokens 3 in 8, running 2 (1 hidden), waiting 1 (one prompt per step), "
        "free blocks 60, prefix hits 8 of 11",
        "active_decode, tokens 2 in 2, running 2 (0 hidden), waiting 1 "
        "(all `max_num_seqs` slots are taken), free blocks 60, prefix hits 0 of 0",
    ]
