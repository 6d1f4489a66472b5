"""Examples that show what the scheduler is for, each as it is told."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from scheduler_factory import add_requests, ends, make_neuron, make_request, run_to_end, step

from neuron_llm.scheduler import SchedulerState, get_default_num_batched_tokens_buckets

TYPICAL: dict[str, Any] = {
    "max_num_seqs": 8,
    "max_num_batched_tokens": 8192,
    "max_model_len": 131_072,
    "block_size": 16,
    "num_blocks": 8 * 8192 + 1,
    "num_batched_tokens_buckets": (512, 1024, 2048, 4096, 8192),
}


def test_the_public_names_come_without_torch() -> None:
    code = (
        "import sys\n"
        "from neuron_llm.scheduler import (Scheduler, AsyncScheduler, NeuronScheduler,\n"
        "    NeuronAsyncScheduler, SchedulerState, SchedulerOutput, Request, BlockPool)\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pydantic', 'vllm'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('neuron_llm.')}\n"
        "print(sorted(rooms))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, rooms = ran.stdout.splitlines()
    assert heavy == "[]"
    assert "'scheduler'" in rooms
    assert not any(room in rooms for room in ("backends", "cli", "compile", "report", "runtime"))


def test_10_000_tokens_in_chunks_of_2_000_are_five_steps_of_prefill() -> None:
    scheduler = make_neuron(
        **{
            **TYPICAL,
            "max_num_batched_tokens": 2000,
            "num_batched_tokens_buckets": (512, 1024, 2000),
        }
    )
    scheduler.add_request(make_request(prompt_len=10_000))
    states = []
    for _ in range(6):
        step(scheduler)
        states.append(scheduler.state)
    prefill, decode = SchedulerState.ACTIVE_PREFILL, SchedulerState.ACTIVE_DECODE
    assert states == [*[prefill] * 5, decode]


@pytest.mark.parametrize(
    ("prompt_len", "num_cached", "padded"),
    [(5000, 0, 8192), (5000, 1000, 4096), (2048, 0, 2048)],
)
def test_counters_move_by_the_real_tokens_and_the_next_step_decodes(
    prompt_len: int, num_cached: int, padded: int
) -> None:
    scheduler = make_neuron(**{**TYPICAL, "block_size": 8, "num_blocks": 8 * 16_384 + 1})
    prompt = list(range(prompt_len))
    if num_cached:
        scheduler.add_request(make_request("before", prompt=prompt[: num_cached + 1], max_tokens=1))
        step(scheduler)
    request = make_request(prompt=prompt)
    scheduler.add_request(request)
    output = step(scheduler).scheduled
    assert output.num_scheduled_tokens == {"r0": prompt_len - num_cached}
    assert output.num_scheduled_tokens_padded == {"r0": padded}
    # Counting the padding, 5,000 - 8,192 = -3,192 tokens would be left of the prompt.
    assert request.num_computed_tokens == prompt_len
    assert request.num_prompt_tokens - request.num_computed_tokens == 0
    decode = step(scheduler).scheduled
    assert decode.num_scheduled_tokens == decode.num_scheduled_tokens_padded == {"r0": 1}
    assert decode.scheduled_cached_reqs.num_computed_tokens == [prompt_len]


@pytest.mark.parametrize(
    ("num_tokens", "padded"), [(0, 0), (50, 128), (127, 128), (128, 128), (129, 256), (1500, 2048)]
)
def test_default_buckets_hold_a_chunk_with_the_least_padding(num_tokens: int, padded: int) -> None:
    defaults = tuple(get_default_num_batched_tokens_buckets(8192))
    scheduler = make_neuron(**{**TYPICAL, "num_batched_tokens_buckets": defaults})
    assert scheduler._calculate_padded_count(num_tokens) == padded
    if num_tokens:
        scheduler.add_request(make_request(prompt_len=num_tokens))
        assert step(scheduler).scheduled.num_scheduled_tokens_padded == {"r0": padded}
        assert scheduler.total_padding_tokens == padded - num_tokens


def test_eight_decode_together_and_prompts_come_in_one_at_a_time_in_their_order() -> None:
    scheduler = make_neuron(**TYPICAL)
    add_requests(scheduler, *(make_request(f"r{i}", 300 + i, max_tokens=5) for i in range(10)))
    steps = run_to_end(scheduler)
    assert ends(steps) == {f"r{i}": "length" for i in range(10)}
    assert [s.num_tokens for s in steps[:8]] == [{f"r{i}": 300 + i} for i in range(8)]
    first_eight = dict.fromkeys([f"r{i}" for i in range(8)], 1)
    assert [s.num_tokens for s in steps[8:12]] == [first_eight] * 4
    # The ninth and the tenth were held back until a slot was free.
    assert [s.num_tokens for s in steps[12:14]] == [{"r8": 308}, {"r9": 309}]
