"""Our schedulers and vLLM's decide the same, step for step."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from judged_vllm import (
    BaseRun,
    JudgedVllm,
    TracedRun,
    has_our_eviction_order,
    vllm_stream,
)
from vllm_factory import VllmAsyncScheduler, VllmScheduler

from neuron_llm.errors import OutOfBlocksError
from neuron_llm.scheduler import (
    AsyncScheduler,
    NeuronAsyncScheduler,
    NeuronScheduler,
    Scheduler,
    vllm_plugin,
)

NUM_STREAMS_PER_CHUNK = 100
# No stream fills as many blocks, so none is ever evicted.
ROOMY = {"num_blocks": 1500}

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("first_seed", range(0, 500, NUM_STREAMS_PER_CHUNK))
@pytest.mark.parametrize(
    ("our_class", "vllm_class", "num_in_flight"),
    [
        (NeuronScheduler, vllm_plugin.NeuronScheduler, 1),
        (NeuronAsyncScheduler, vllm_plugin.NeuronAsyncScheduler, 2),
    ],
)
def test_our_scheduler_and_the_plug_in_take_the_same_steps(
    our_class: Any, vllm_class: Any, num_in_flight: int, first_seed: int
) -> None:
    changes = {} if has_our_eviction_order() else ROOMY
    num_shared_steps = 0
    for seed in range(first_seed, first_seed + NUM_STREAMS_PER_CHUNK):
        ours = TracedRun(vllm_stream(seed, **changes), our_class, num_in_flight)
        theirs = TracedRun(
            vllm_stream(seed, **changes), partial(JudgedVllm, vllm_class), num_in_flight
        )
        ours.run()
        theirs.run()
        assert theirs.trace == ours.trace, f"seed {seed}"
        num_shared_steps += sum(step.has_shared_block for step in ours.trace)
    assert num_shared_steps > 50, "the streams share too little to say anything"


@pytest.mark.parametrize("first_seed", range(0, 500, NUM_STREAMS_PER_CHUNK))
@pytest.mark.parametrize(
    ("our_class", "vllm_class", "num_in_flight"),
    [(Scheduler, VllmScheduler, 1), (AsyncScheduler, VllmAsyncScheduler, 2)],
)
def test_our_base_and_vllms_take_the_same_steps_up_to_the_first_preemption(
    our_class: Any, vllm_class: Any, num_in_flight: int, first_seed: int
) -> None:
    """Where vLLM takes blocks back from a running request, ours raises, and at the same step."""
    changes = {} if has_our_eviction_order() else ROOMY
    num_whole = 0
    for seed in range(first_seed, first_seed + NUM_STREAMS_PER_CHUNK):
        ours = BaseRun(vllm_stream(seed, **changes), our_class, num_in_flight)
        theirs = BaseRun(
            vllm_stream(seed, **changes), partial(JudgedVllm, vllm_class), num_in_flight
        )
        try:
            ours.run()
        except OutOfBlocksError:
            with pytest.raises(AssertionError, match="somebody was preempted"):
                theirs.run()
        else:
            theirs.run()
            num_whole += 1
        assert theirs.trace == ours.trace, f"seed {seed}"
    assert num_whole > NUM_STREAMS_PER_CHUNK // 2
