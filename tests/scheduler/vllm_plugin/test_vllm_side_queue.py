"""Requests that wait for something else than a slot stall nobody and come in one at a time."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from vllm_factory import sampling
from vllm_loop import Loop

from neuron_llm.scheduler import HoldReason
from neuron_llm.scheduler.vllm_plugin import NeuronAsyncScheduler, NeuronScheduler, versions

BOTH_CLASSES = [NeuronScheduler, NeuronAsyncScheduler]

pytestmark = pytest.mark.filterwarnings("default")


class Grammar:
    """Accepts everything."""

    def accept_tokens(self, request_id: str, token_ids: list[int]) -> bool:
        return True


def add_structured(loop: Loop, request_id: str, **fields: Any) -> Future[Any]:
    """Add a request whose grammar is compiled when the returned future says so."""
    params = sampling.StructuredOutputsParams(json="{}")
    request = loop.add(request_id, structured_outputs=params, **fields)
    grammar: Future[Any] = Future()
    request.structured_output_request.grammar = grammar
    return grammar


@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_decodes_go_on_while_a_grammar_is_compiled(scheduler_class: Any) -> None:
    loop = Loop(scheduler_class)
    loop.add("a", max_tokens=20)
    loop.step()
    grammar = add_structured(loop, "s")
    assert loop.steps(3) == [{"a": 1}, {"a": 1}, {"a": 1}]
    assert loop.scheduler.last_stats.hold_reason is HoldReason.NOT_READY
    grammar.set_result(Grammar())
    assert loop.steps(2) == [{"s": 4}, {"a": 1, "s": 1}]
    loop.run_to_end()
    assert {r: len(t) for r, t in loop.tokens.items()} == {"a": 20, "s": 8}


def test_ready_requests_pass_one_that_is_not_and_it_keeps_its_place() -> None:
    loop = Loop(NeuronScheduler)
    grammar = add_structured(loop, "s")
    loop.add("a")
    loop.add("b")
    assert loop.steps(2) == [{"a": 4}, {"b": 4}]
    loop.add("c")
    grammar.set_result(Grammar())
    assert loop.steps(2) == [{"s": 4}, {"c": 4}]


def test_two_grammars_that_are_ready_together_start_one_after_the_other() -> None:
    loop = Loop(NeuronScheduler)
    grammars = [add_structured(loop, "s"), add_structured(loop, "t")]
    assert loop.step() == {}
    for grammar in grammars:
        grammar.set_result(Grammar())
    assert loop.steps(3) == [{"s": 4}, {"t": 4}, {"s": 1, "t": 1}]


def test_only_a_waiting_grammar_is_no_lack_of_progress() -> None:
    loop = Loop(NeuronScheduler)
    add_structured(loop, "s")
    assert loop.steps(3) == [{}, {}, {}]
    loop.abort("s")
    loop.run_to_end()
    assert not loop.scheduler.requests


def test_a_grammar_that_does_not_compile_ends_its_request_beside_running_decodes() -> None:
    loop = Loop(NeuronScheduler)
    if not hasattr(loop.scheduler, "grammar_compile_error_reqs"):
        pytest.skip("this vLLM raises where the grammar is asked for")
    loop.add("a", max_tokens=20)
    loop.step()
    add_structured(loop, "s").set_exception(ValueError("bad schema"))
    loop.steps(2)
    assert loop.finish_reasons == {"s": "error"}
    assert loop.running == ["a"] and loop.waiting == []


def hold_kv(loop: Loop, request_id: str, num_loaded_tokens: int, prompt_len: int = 8) -> Any:
    """Add a request as a KV connector leaves it: waiting, with blocks that are filled."""
    request = loop.add(request_id, prompt_len)
    loop.scheduler.waiting.remove_request(request)
    blocks = loop.scheduler.kv_cache_manager.allocate_slots(request, num_loaded_tokens)
    assert blocks is not None
    request.num_computed_tokens = num_loaded_tokens
    versions.side_queue(loop.scheduler).add_request(request)
    return request


def test_requests_with_loaded_kv_come_first_and_one_at_a_time() -> None:
    loop = Loop(NeuronScheduler)
    loop.add("a", max_tokens=20)
    loop.step()
    loop.add("b")
    hold_kv(loop, "k", 4)
    hold_kv(loop, "l", 7)
    assert loop.steps(4) == [{"k": 4}, {"l": 1}, {"b": 4}, {"a": 1, "k": 1, "l": 1, "b": 1}]
    loop.run_to_end()
    assert loop.num_free_blocks == 64


def test_requests_with_loaded_kv_do_not_exceed_the_slots() -> None:
    loop = Loop(NeuronScheduler, max_num_seqs=2)
    loop.add("a", max_tokens=3)
    loop.step()
    hold_kv(loop, "k", 4)
    hold_kv(loop, "l", 4)
    assert loop.steps(3) == [{"k": 4}, {"a": 1, "k": 1}, {"a": 1, "k": 1}]
    assert loop.step() == {"l": 4}


def test_blocks_that_waiting_requests_hold_are_promised_to_their_ends() -> None:
    # 18 usable blocks; "k" may come to hold 15 tokens in 4 blocks, "a" 63 in 16.
    loop = Loop(NeuronScheduler, num_blocks=19, max_num_seqs=1)
    loop.add("r", max_tokens=2)
    loop.step()
    hold_kv(loop, "k", 4)
    loop.add("a", 40, max_tokens=30)
    assert loop.steps(2) == [{"r": 1}, {"k": 4}]
    steps = loop.run_to_end()
    assert steps[7] == {"a": 16} and loop.finish_reasons == dict.fromkeys("rka", "length")


def test_a_prefill_that_gets_nothing_does_not_stall_decodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop(NeuronScheduler)
    loop.add("a", max_tokens=20)
    loop.step()
    refused = loop.add("b")
    allocate_slots = loop.scheduler.kv_cache_manager.allocate_slots

    def refuse(request: Any, *args: Any, **kwargs: Any) -> Any:
        return None if request is refused else allocate_slots(request, *args, **kwargs)

    monkeypatch.setattr(loop.scheduler.kv_cache_manager, "allocate_slots", refuse)
    # As if a KV connector could not tell yet: then nothing is known about progress.
    monkeypatch.setattr(loop.scheduler, "_check_progress", lambda output: None)
    assert loop.steps(4) == [{}, {"a": 1}, {}, {"a": 1}]
    assert loop.waiting == ["b"]


def test_paused_sessions_take_a_slot() -> None:
    loop = Loop(NeuronScheduler, max_num_seqs=2)
    loop.scheduler.num_waiting_for_streaming_input = 1
    loop.add("a", max_tokens=2)
    loop.add("b")
    assert loop.steps(3) == [{"a": 4}, {"a": 1}, {"b": 4}]
