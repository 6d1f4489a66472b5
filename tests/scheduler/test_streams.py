from __future__ import annotations

import pytest
from streams import BOTH_CLASSES, run_stream

from neuron_llm.scheduler import NeuronScheduler

NUM_STREAMS_PER_CHUNK = 100


@pytest.mark.parametrize("first_seed", range(0, 1500, NUM_STREAMS_PER_CHUNK))
@pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
def test_random_streams_run_as_if_each_request_ran_alone(
    scheduler_class: type[NeuronScheduler], first_seed: int
) -> None:
    for seed in range(first_seed, first_seed + NUM_STREAMS_PER_CHUNK):
        run_stream(seed, scheduler_class)
