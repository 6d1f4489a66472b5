"""What goes wrong when the holdback logic meets vLLM's own scheduler unprepared."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from test_padded_counts import assert_apart
from vllm_factory import interface
from vllm_loop import Loop

from neuron_llm.errors import OutOfBlocksError, RequestError
from neuron_llm.scheduler import HoldReason, SchedulerState
from neuron_llm.scheduler.vllm_plugin import NeuronAsyncScheduler, NeuronScheduler, versions

BOTH_CLASSES = [NeuronScheduler, NeuronAsyncScheduler]

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def loop() -> Loop:
    return Loop(NeuronScheduler)


def test_a_new_prompt_runs_alone_and_decodes_wait(loop: Loop) -> None:
    loop.add("a", 4)
    loop.add("b", 20)
    assert loop.steps(4) == [{"a": 4}, {"b": 16}, {"b": 4}, {"a": 1, "b": 1}]
    assert loop.running == ["a", "b"]


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_the_padded_sizes_are_set_and_reach_a_worker_process(scheduler_class: Any) -> None:
    loop = Loop(scheduler_class)
    loop.add("a", 5)
    output = pickle.loads(pickle.dumps(loop.scheduler.schedule()))
    assert output.num_scheduled_tokens == {"a": 5}
    assert output.num_scheduled_tokens_padded == {"a": 8}
    loop.finish(output)
    output = loop.scheduler.schedule()
    assert output.num_scheduled_tokens_padded == output.num_scheduled_tokens == {"a": 1}
    assert loop.scheduler.total_padding_tokens == 3


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_counts_and_padded_sizes_are_two_dicts(scheduler_class: Any) -> None:
    loop = Loop(scheduler_class)
    loop.add("a", 8)
    loop.add("b", 5)
    for _ in range(4):
        output = loop.scheduler.schedule()
        assert_apart(output)
        loop.finish(output)
    assert loop.scheduler.state is SchedulerState.ACTIVE_DECODE


def test_running_stays_in_order_of_admission(loop: Loop) -> None:
    for request_id in "abcd":
        loop.add(request_id)
    loop.steps(6)
    assert loop.running == ["a", "b", "c", "d"]


def test_an_exact_multiple_of_blocks_does_not_deadlock() -> None:
    # 16 blocks hold one request of 64 tokens; block 0 leaves 31 of 32 to hand out.
    loop = Loop(NeuronScheduler, num_blocks=32, kv_admission="max_model_len")
    loop.add("a", 40, max_tokens=24)
    loop.add("b", 40, max_tokens=24)
    loop.steps(5)
    assert loop.running == ["a"] and loop.waiting == ["b"]
    assert loop.scheduler.last_stats.hold_reason is HoldReason.KV
    loop.run_to_end()
    assert {r: len(t) for r, t in loop.tokens.items()} == {"a": 24, "b": 24}


@pytest.mark.parametrize("reserve_full_isl", [True, False])
@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_nobody_is_preempted_when_blocks_are_few(
    scheduler_class: Any, reserve_full_isl: bool
) -> None:
    limits = {"scheduler_reserve_full_isl": reserve_full_isl}
    loop = Loop(scheduler_class, vllm=limits, num_blocks=18)
    requests = [loop.add(str(index), 20, max_tokens=30) for index in range(4)]
    loop.run_to_end()
    assert [request.num_preemptions for request in requests] == [0, 0, 0, 0]
    assert [len(loop.tokens[str(index)]) for index in range(4)] == [30, 30, 30, 30]
    assert loop.num_free_blocks == 17


def test_a_preemption_for_want_of_blocks_is_refused_and_nobody_is_lost(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.add("a")
    loop.add("b")
    loop.steps(2)
    monkeypatch.setattr(loop.scheduler.kv_cache_manager, "allocate_slots", lambda *a, **k: None)
    with pytest.raises(OutOfBlocksError, match="`b` would have to give its KV blocks back"):
        loop.scheduler.schedule()
    assert loop.running == ["a", "b"]


def test_queues_and_limits_are_restored_when_vllm_raises(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.add("a")
    loop.step()
    loop.add("b")
    loop.add("c")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no slots today")

    with monkeypatch.context() as patch:
        patch.setattr(loop.scheduler.kv_cache_manager, "allocate_slots", fail)
        with pytest.raises(ValueError, match="no slots today"):
            loop.scheduler.schedule()
    assert loop.running == ["a"] and loop.waiting == ["b", "c"]
    assert not loop.scheduler.holdback_queue
    assert loop.scheduler.max_num_running_reqs == versions.active_limit(loop.scheduler) == 4
    assert loop.scheduler.max_num_scheduled_tokens == 16
    loop.run_to_end()
    assert {r: len(t) for r, t in loop.tokens.items()} == {"a": 8, "b": 8, "c": 8}


class MixesPhases(NeuronScheduler):
    is_mixing = False

    def _hide_other_phase(self) -> None:
        if not self.is_mixing:
            super()._hide_other_phase()


def test_a_mixed_batch_is_refused_before_its_counters_move() -> None:
    loop = Loop(MixesPhases)
    first = loop.add("a")
    loop.step()
    second = loop.add("b")
    loop.scheduler.is_mixing = True
    with pytest.raises(RuntimeError, match="not 1 prefills and 1 decodes"):
        loop.scheduler.schedule()
    assert (first.num_computed_tokens, second.num_computed_tokens) == (4, 0)


def test_hidden_requests_count_against_the_slots() -> None:
    loop = Loop(NeuronScheduler, max_num_seqs=2)
    for request_id in "abc":
        loop.add(request_id, max_tokens=3)
    loop.steps(3)
    assert loop.running == ["a", "b"] and loop.waiting == ["c"]
    assert loop.scheduler.last_stats.hold_reason is HoldReason.SLOTS


def test_a_lower_limit_of_active_requests_holds() -> None:
    loop = Loop(NeuronScheduler)
    if not hasattr(loop.scheduler, "max_num_active_reqs"):
        pytest.skip("this vLLM has one limit only")
    loop = Loop(NeuronScheduler, vllm={"max_num_active_seqs": 1})
    loop.add("a", max_tokens=3)
    loop.add("b", max_tokens=3)
    assert loop.steps(5) == [{"a": 4}, {"a": 1}, {"a": 1}, {"b": 4}, {"b": 1}]


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_requests_reset_while_they_run_compute_their_outputs_again_as_prefills(
    scheduler_class: Any,
) -> None:
    loop = Loop(scheduler_class, enable_prefix_caching=False)
    loop.add("a", 10, max_tokens=20)
    loop.add("b", 4, max_tokens=20)
    loop.steps(10)
    # vLLM drops what a step in flight samples, and up to 0.30 takes it that there is one.
    in_flight = loop.scheduler.schedule() if scheduler_class is NeuronAsyncScheduler else None
    assert loop.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert loop.running == [] and loop.waiting == ["a", "b"]
    if in_flight is not None:
        loop.finish(in_flight)
    output = loop.scheduler.schedule()
    # 10 prompt tokens and 9 outputs: the second chunk holds outputs only, and is a prefill still.
    assert output.num_scheduled_tokens == {"a": 16}
    loop.finish(output)
    output = loop.scheduler.schedule()
    assert output.num_scheduled_tokens == {"a": 3}
    assert output.num_scheduled_tokens_padded == {"a": 8}
    assert loop.scheduler.state is SchedulerState.ACTIVE_PREFILL
    loop.finish(output)
    assert loop.step() == {"b": 13}
    loop.run_to_end()
    assert {r: len(t) for r, t in loop.tokens.items()} == {"a": 20, "b": 20}


@pytest.mark.parametrize("prompt_len", [64, 65])
def test_a_prompt_that_leaves_no_room_for_an_answer_is_refused(loop: Loop, prompt_len: int) -> None:
    with pytest.raises(RequestError, match="leaves room for 63"):
        loop.add("a", prompt_len)
    assert loop.waiting == [] and not loop.scheduler.requests


def test_the_longest_prompt_ends_with_one_token(loop: Loop) -> None:
    loop.add("a", 63)
    assert loop.run_to_end()[:4] == [{"a": 16}, {"a": 16}, {"a": 16}, {"a": 15}]
    assert loop.tokens == {"a": [7]} and loop.finish_reasons == {"a": "length"}


def test_a_pause_of_new_requests_lets_running_ones_end(loop: Loop) -> None:
    loop.add("a", max_tokens=3)
    loop.step()
    loop.add("b")
    loop.scheduler.set_pause_state(interface.PauseState.PAUSED_NEW)
    assert loop.steps(2) == [{"a": 1}, {"a": 1}]
    assert loop.finish_reasons == {"a": "length"} and loop.waiting == ["b"]
    assert loop.step() == {}
    assert loop.scheduler.last_stats.hold_reason is HoldReason.NOT_READY
    loop.scheduler.set_pause_state(interface.PauseState.UNPAUSED)
    assert loop.step() == {"b": 4}


def test_a_full_pause_stops_everything_and_loses_nothing(loop: Loop) -> None:
    loop.add("a", 20)
    loop.step()
    loop.add("b")
    loop.scheduler.set_pause_state(interface.PauseState.PAUSED_ALL)
    assert loop.steps(2) == [{}, {}]
    loop.scheduler.set_pause_state(interface.PauseState.UNPAUSED)
    assert loop.steps(2) == [{"a": 4}, {"b": 4}]


def test_long_prompts_are_cut_at_the_threshold_while_others_wait() -> None:
    loop = Loop(NeuronScheduler, vllm={"long_prefill_token_threshold": 8})
    loop.add("a", 20, max_tokens=2)
    loop.add("b", 4)
    assert loop.steps(4) == [{"a": 8}, {"a": 8}, {"a": 4}, {"b": 4}]


def test_throttled_prefills_let_decodes_run(loop: Loop) -> None:
    loop.add("a")
    loop.step()
    loop.add("b")
    output = loop.scheduler.schedule(True)
    assert output.num_scheduled_tokens == {"a": 1}
    loop.finish(output)
    assert loop.step() == {"b": 4}


def test_throttling_without_decodes_does_not_stop_prefills(loop: Loop) -> None:
    loop.add("a", 20)
    assert loop.scheduler.schedule(True).num_scheduled_tokens == {"a": 16}


def test_an_aborted_prefill_gives_the_step_back_to_decodes(loop: Loop) -> None:
    loop.add("a")
    loop.step()
    loop.add("b", 40)
    assert loop.step() == {"b": 16}
    loop.abort("b")
    assert loop.step() == {"a": 1}


def test_the_state_is_idle_when_everybody_has_ended(loop: Loop) -> None:
    loop.add("a", max_tokens=1)
    loop.step()
    assert loop.step() == {} and loop.scheduler.state is SchedulerState.IDLE
    assert not loop.scheduler.has_requests()
