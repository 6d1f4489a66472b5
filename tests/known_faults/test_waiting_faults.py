"""Faults of waiting: a long prompt that is computed in chunks, and the short ones behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Compiled
from engine_streams import async_copy
from tiny_models import random_prompt

from neuron_llm import SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.runtime.engine.async_engine import AsyncEngine
from neuron_llm.runtime.engine.engine import Engine, ignore_step
from neuron_llm.runtime.engine.outputs import RequestOutput
from neuron_llm.scheduler.step_record import StepRecord


class TickingGraphs:
    """Graphs that take a second each, on a clock that stands still otherwise."""

    def __init__(
        self,
        engine_class: type[Engine],
        artifact: Path,
        on_step: Callable[[StepRecord], None] = ignore_step,
    ) -> None:
        self.now = 0.0
        self.engine = engine_class(Artifact.open(artifact), on_step=on_step, clock=lambda: self.now)
        self._session = self.engine.runner.session
        self.engine.runner.session = self  # type: ignore[assignment]

    def execute(self, bucket: Any, inputs: Any) -> torch.Tensor:
        """Run the graph."""
        self.now += 1.0
        return self._session.execute(bucket, inputs)


def run_to_end(engine: Engine) -> dict[str, RequestOutput]:
    results: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        results |= {o.request_id: o.result for o in engine.step() if o.result is not None}
    return results


def queue_time(output: RequestOutput) -> float:
    assert output.times.first_scheduled is not None
    return output.times.first_scheduled - output.times.arrival


@pytest.mark.parametrize("is_ahead", [False, True], ids=["one step at a time", "a step ahead"])
def test_short_prompts_wait_for_a_long_one_in_order_and_are_told_how_long(
    llama: Compiled, tmp_path: Path, is_ahead: bool
) -> None:
    """The fault: short requests wait behind every chunk of a long one, and nothing shows it."""
    artifact = async_copy(llama.artifact, tmp_path / "tiny") if is_ahead else llama.artifact
    steps: list[StepRecord] = []
    engine = TickingGraphs(AsyncEngine if is_ahead else Engine, artifact, steps.append).engine
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    for index, length in enumerate((60, 3, 5, 4)):
        engine.add_request(f"r{index}", random_prompt(length, seed=length), params)
    results = run_to_end(engine)
    # The long prompt is four chunks of a second each; then the others, as they came.
    assert [queue_time(results[f"r{i}"]) for i in range(4)] == [0, 4, 5, 6]
    assert [results[f"r{i}"].times.tokens[0] for i in range(4)] == (
        pytest.approx([4, 5, 6, 7], abs=float(is_ahead))
    )
    waits = [step.queue_seconds for step in steps]
    assert waits == [0, None, None, None, 4, 5, 6, *[None] * (len(steps) - 7)]


def test_a_request_that_comes_later_waits_from_then_on(llama: Compiled) -> None:
    engine = TickingGraphs(Engine, llama.artifact).engine
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    engine.add_request("long", random_prompt(40, seed=1), params)
    engine.step()
    engine.add_request("short", [1, 2], params)
    engine.step()
    (aborted,) = engine.abort_requests(["short"])
    assert aborted.times.first_scheduled is None
    results = run_to_end(engine)
    engine.add_request("twice", [1, 2, 3], SamplingParams(n=2, seed=1, max_tokens=2))
    results |= run_to_end(engine)
    assert (queue_time(results["long"]), queue_time(results["twice"])) == (0, 0)
