from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from judged_vllm import JudgedVllm, TracedRun, vllm_stream

from neuron_llm.scheduler.vllm_plugin import NeuronAsyncScheduler, NeuronScheduler

NUM_STREAMS_PER_CHUNK = 100
BOTH_CLASSES = [(NeuronScheduler, 1), (NeuronAsyncScheduler, 2)]

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("first_seed", range(0, 500, NUM_STREAMS_PER_CHUNK))
@pytest.mark.parametrize(("vllm_class", "num_in_flight"), BOTH_CLASSES)
def test_random_streams_over_vllm_run_as_if_each_request_ran_alone(
    vllm_class: Any, num_in_flight: int, first_seed: int
) -> None:
    for seed in range(first_seed, first_seed + NUM_STREAMS_PER_CHUNK):
        run = TracedRun(vllm_stream(seed), partial(JudgedVllm, vllm_class), num_in_flight)
        run.run()


class MixesPhases(NeuronScheduler):
    def _hide_other_phase(self) -> None:
        pass


class ForgetsHiddenRunning(NeuronScheduler):
    def _hide_other_phase(self) -> None:
        super()._hide_other_phase()
        self._running_holdback = []


class AdmitsWithoutReserve(NeuronScheduler):
    def _block_holders(self, candidate: Any) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("vllm_class", "verdict"),
    [
        (MixesPhases, "one prefill or only decodes"),
        (ForgetsHiddenRunning, ""),
        (AdmitsWithoutReserve, "give its KV blocks back|nothing can be scheduled"),
    ],
)
def test_the_judge_finds_a_broken_plug_in(vllm_class: Any, verdict: str) -> None:
    def run_all() -> None:
        for seed in range(300):
            stream = vllm_stream(seed, kv_admission="reserve")
            TracedRun(stream, partial(JudgedVllm, vllm_class), 1).run()

    with pytest.raises(Exception, match=verdict or None):
        run_all()
