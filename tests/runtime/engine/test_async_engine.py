"""The engine with a step in flight: what `Engine` gives, a graph's time earlier."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
import torch
from conftest import Compiled
from engine_streams import async_copy, random_requests, run_stream
from tiny_models import random_prompt

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import ArtifactError
from neuron_llm.runtime.engine.async_engine import AsyncEngine
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.phases import StepPhases
from neuron_llm.scheduler import NeuronAsyncScheduler
from neuron_llm.scheduler.step_record import StepRecord


def greedy(**fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0, ignore_eos=True, **fields)


@pytest.fixture(scope="module")
def async_artifact(llama: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return async_copy(llama.artifact, tmp_path_factory.mktemp("async") / "tiny")


@pytest.fixture(scope="module")
def sync_llm(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture(scope="module")
def loaded(async_artifact: Path) -> LLM:
    return LLM(async_artifact)


@pytest.fixture
def llm(loaded: LLM) -> Iterator[LLM]:
    """An engine with an empty prefix cache; a test leaves no request behind."""
    assert loaded.engine.scheduler.reset_prefix_cache()
    yield loaded
    loaded.engine.on_step = lambda _: None
    while loaded.engine.has_unfinished_requests():
        assert not loaded.engine.scheduler.requests
        assert loaded.engine.step() == []


def tokens(llm: LLM, prompt: list[int], params: SamplingParams) -> tuple[int, ...]:
    return llm.generate([prompt], params)[0].outputs[0].token_ids


def test_the_setting_picks_the_engine(sync_llm: LLM, llm: LLM) -> None:
    assert type(sync_llm.engine) is Engine
    assert type(llm.engine) is AsyncEngine
    assert type(llm.engine.scheduler) is NeuronAsyncScheduler


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Engine, Engine]:
    compiled: Compiled = request.getfixturevalue(request.param)
    copy = async_copy(compiled.artifact, tmp_path_factory.mktemp("both") / "tiny")
    return Engine(Artifact.open(compiled.artifact)), AsyncEngine(Artifact.open(copy))


def test_random_streams_give_what_the_synchronous_engine_gives(
    engines: tuple[Engine, Engine],
) -> None:
    sync, ahead = engines
    reasons = set()
    for seed in range(40):
        requests = random_requests(seed, sync.scheduler.max_model_len)
        expected, got = run_stream(sync, requests), run_stream(ahead, requests)
        for request in requests:
            before, after = expected.outcome(request.request_id), got.outcome(request.request_id)
            reasons.add(after[2])
            if request.abort is None:
                assert after == before, (seed, request)
            else:
                # It had more time in one of them: the shorter output begins the longer one.
                shorter, longer = sorted([before[0], after[0]], key=len)
                assert longer[: len(shorter)] == shorter, (seed, request)
    assert reasons == {"length", "stop", "abort"}


def test_the_first_step_gives_nothing_and_each_later_one_its_predecessors_tokens(
    llm: LLM, sync_llm: LLM
) -> None:
    prompt = random_prompt(5, seed=1)
    llm.engine.add_request("r", prompt, greedy(max_tokens=3))
    given: list[tuple[int, ...] | None] = []
    while llm.engine.has_unfinished_requests():
        outputs = llm.engine.step()
        given.append(
            outputs[0].result.outputs[0].token_ids if outputs and outputs[0].result else None
        )
    assert given == [None, None, None, tokens(sync_llm, prompt, greedy(max_tokens=3))]


def test_a_step_is_told_and_the_next_one_prepared_while_a_graph_runs(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llm.engine
    told = Semaphore(0)
    prepared = Semaphore(0)
    execute = engine.runner.session.execute
    prepare, publish = StepPhases.prepare, StepPhases.publish
    num_graphs = 0
    waits: list[bool] = []

    def graph(bucket: Any, inputs: Any) -> torch.Tensor:
        nonlocal num_graphs
        num_graphs += 1
        # The first step was prepared before its graph, and nothing is told before the second.
        waits.append(num_graphs == 1 or told.acquire(timeout=60))
        waits.append(prepared.acquire(timeout=60))
        return execute(bucket, inputs)

    def observed_prepare(*args: Any) -> Any:
        step = prepare(*args)
        if num_graphs or engine._in_flight is not None:  # type: ignore[attr-defined]
            prepared.release()
        return step

    def observed_publish(*args: Any) -> Any:
        told.release()
        return publish(*args)

    monkeypatch.setattr(engine.runner.session, "execute", graph)
    monkeypatch.setattr(StepPhases, "prepare", observed_prepare)
    monkeypatch.setattr(StepPhases, "publish", observed_publish)
    engine.add_request("r", random_prompt(5, seed=1), greedy(max_tokens=8))
    while engine.has_unfinished_requests():
        engine.step()
    # Each graph ended only after the step before it was told and the step behind it prepared.
    assert waits == [True] * 16


@pytest.mark.parametrize("ending", ["eos", "stop token", "stop string"])
def test_an_end_found_late_costs_one_row_and_nothing_else(
    llm: LLM, sync_llm: LLM, ending: str
) -> None:
    prompt = random_prompt(7, seed=4)
    plain = sync_llm.generate([prompt], greedy(max_tokens=12))[0].outputs[0]
    endings: dict[str, dict[str, Any]] = {
        "eos": {},
        "stop token": {"stop_token_ids": [plain.token_ids[5]]},
        "stop string": {"stop": [plain.text[4:6]]},
    }
    fields = endings[ending]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=ending != "eos", **fields)

    def run(one: LLM) -> tuple[Any, int]:
        steps: list[StepRecord] = []
        one.engine.scheduler.reset_prefix_cache()
        one.engine.on_step = steps.append
        sampler = one.engine.runner.sampler
        before = sampler.eos_token_ids
        if ending == "eos":
            sampler.eos_token_ids = (*before, plain.token_ids[5])
        output = one.generate([prompt], params)[0].outputs
        sampler.eos_token_ids = before
        one.engine.on_step = lambda _: None
        return output, sum(step.num_tokens for step in steps)

    (expected, num_tokens), (output, num_tokens_ahead) = run(sync_llm), run(llm)
    assert output == expected
    assert output[0].finish_reason == "stop"
    assert num_tokens_ahead == num_tokens + 1


def test_an_end_by_length_costs_no_row(llm: LLM) -> None:
    steps: list[StepRecord] = []
    llm.engine.on_step = steps.append
    llm.generate([[1, 2, 3], [4]], greedy(max_tokens=6))
    assert sum(step.num_tokens for step in steps) == 4 + 2 * 5


def test_an_aborted_request_gives_back_its_blocks_while_its_step_runs(
    llm: LLM, sync_llm: LLM
) -> None:
    engine, prompt = llm.engine, random_prompt(20, seed=1)
    engine.add_request("a", prompt, greedy(max_tokens=30))
    for _ in range(4):
        engine.step()
    (output,) = engine.abort_requests(["a"])
    assert engine.scheduler.kv_cache_manager.num_free_blocks == 64
    expected = tokens(sync_llm, prompt, greedy(max_tokens=30))
    assert output.outputs[0].token_ids == expected[:2]
    assert tokens(llm, prompt, greedy(max_tokens=30)) == expected


def test_an_id_may_come_back_while_a_step_of_its_first_owner_runs(llm: LLM, sync_llm: LLM) -> None:
    engine = llm.engine
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=6, ignore_eos=True)
    prompts = [random_prompt(n, seed=n) for n in (6, 3)]
    engine.add_request("a", prompts[0], greedy(max_tokens=20))
    for _ in range(3):
        engine.step()
    engine.abort_requests(["a"])
    engine.add_request("a", prompts[1], params)
    results = []
    while engine.has_unfinished_requests():
        results += [output.result for output in engine.step() if output.result]
    (result,) = results
    assert result.outputs[0].token_ids == tokens(sync_llm, prompts[1], params)


def test_a_request_whose_logits_are_no_numbers_fails_alone(
    llm: LLM, sync_llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = llm.engine.runner.session
    execute = session.execute

    def poisoned(bucket: Any, inputs: Any) -> torch.Tensor:
        logits = execute(bucket, inputs)
        logits[inputs.input_ids[inputs.logits_indices] == 5] = math.nan
        return logits

    monkeypatch.setattr(session, "execute", poisoned)
    good, bad = llm.generate([[1, 2, 3], [3, 4, 5]], greedy(max_tokens=4))
    assert good.outputs[0].token_ids == tokens(sync_llm, [1, 2, 3], greedy(max_tokens=4))
    assert bad.outputs[0].finish_reason == "error"
    assert bad.error is not None and "logits" in bad.error


@pytest.mark.parametrize("name", ["schedule", "prepare", "execute", "sample", "update", "publish"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ArtifactError("a graph failed")])
@pytest.mark.parametrize("is_ahead", [False, True])
def test_after_an_exception_in_a_step_the_engine_is_empty_and_right(
    llm: LLM, sync_llm: LLM, name: str, error: BaseException, is_ahead: bool
) -> None:
    one = llm if is_ahead else sync_llm
    prompts = [random_prompt(n, seed=n) for n in (3, 20, 33)]
    expected = [o.outputs for o in one.generate(prompts, greedy(max_tokens=6))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepPhases, name, failing_at(4, getattr(StepPhases, name), error))
        with pytest.raises(type(error)):
            one.generate(prompts, greedy(max_tokens=6))
    assert not one.engine.has_unfinished_requests()
    assert one.engine.scheduler.kv_cache_manager.num_free_blocks == 64
    assert [o.outputs for o in one.generate(prompts, greedy(max_tokens=6))] == expected


def failing_at(count: int, function: Callable[..., Any], error: BaseException) -> Any:
    """Return the function, raising at the call of that number."""
    num_calls = 0

    def call(*arguments: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == count:
            raise error
        return function(*arguments)

    return call


@pytest.mark.parametrize("ending", ["", "raise KeyboardInterrupt", "del llm"])
def test_a_process_ends_quietly_with_a_step_in_flight(async_artifact: Path, ending: str) -> None:
    script = (
        "import sys; from neuron_llm import LLM, SamplingParams\n"
        "llm = LLM(sys.argv[1])\n"
        "llm.engine.add_request('r', [1, 2, 3], SamplingParams(max_tokens=50))\n"
        "for _ in range(5): llm.engine.step()\n"
        "assert llm.engine._in_flight is not None\n"
        f"{ending}\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(async_artifact)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "Interrupt" in ending:
        assert result.stderr.strip().splitlines()[-1] == "KeyboardInterrupt"
        assert result.stderr.count("Traceback") == 1
    else:
        assert (result.returncode, result.stderr) == (0, "")
