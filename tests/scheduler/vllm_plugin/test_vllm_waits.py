"""Waiting that stock vLLM takes calmly does not end the engine, and lists may be tuples."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_factory import make_config, make_request
from vllm_factory import make_vllm_config, make_vllm_request, make_vllm_scheduler
from vllm_loop import Loop

from neuron_llm.scheduler import HoldReason
from neuron_llm.scheduler.vllm_plugin import NeuronAsyncScheduler, NeuronScheduler

BOTH_CLASSES = [NeuronScheduler, NeuronAsyncScheduler]

pytestmark = pytest.mark.filterwarnings("default")


def add_turn(loop: Loop, request_id: str, prompt_len: int) -> Any:
    """Begin a session, or give it its next input."""
    ours = make_request(request_id, prompt_len, max_tokens=3)
    turn = make_vllm_request(ours, loop.config.block_size)
    turn.resumable = True
    loop.scheduler.add_request(turn)
    return turn


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_num_seqs": 1}, HoldReason.SLOTS), ({"num_blocks": 18}, HoldReason.KV)],
)
@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_a_request_waits_for_a_session_that_waits_for_input(
    scheduler_class: Any, limits: dict[str, Any], reason: HoldReason
) -> None:
    loop = Loop(scheduler_class, **limits)
    add_turn(loop, "s", 8)
    loop.steps(3)
    assert loop.scheduler.num_waiting_for_streaming_input == 1
    loop.add("b", 40, max_tokens=24)
    # The session keeps its slot and its blocks, and its input comes from outside.
    assert loop.steps(3) == [{}, {}, {}]
    assert loop.scheduler.last_stats.hold_reason is reason
    add_turn(loop, "s", 4)
    assert loop.steps(3) == [{"s": 4}, {"s": 1}, {"s": 1}]
    loop.abort("s")
    assert loop.step() == {"b": 16}
    loop.run_to_end()
    assert len(loop.tokens["b"]) == 24


def test_a_threshold_for_long_prompts_without_chunks_stalls_nobody() -> None:
    limits = {"enable_chunked_prefill": False, "long_prefill_token_threshold": 8}
    loop = Loop(
        NeuronScheduler,
        vllm=limits,
        max_num_batched_tokens=64,
        num_batched_tokens_buckets=(16, 64),
    )
    loop.add("a", 20, max_tokens=2)
    loop.add("b", 4, max_tokens=2)
    loop.run_to_end()
    assert {r: len(t) for r, t in loop.tokens.items()} == {"a": 2, "b": 2}


def test_buckets_may_be_tuples() -> None:
    config = make_config()
    buckets = {"num_batched_tokens_buckets": (8, 16), "num_seqs_buckets": (2, 4)}
    scheduler = make_vllm_scheduler(NeuronScheduler, config, make_vllm_config(config, buckets))
    assert scheduler.num_batched_tokens_buckets == (8, 16)
    assert scheduler.num_seqs_buckets == (2, 4)
