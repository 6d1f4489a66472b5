"""An interrupt that hits while requests are added or ended: nothing is left behind half done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Compiled
from engine_streams import async_copy
from tiny_models import random_prompt

from neuron_llm import SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import RequestError
from neuron_llm.runtime.engine import live_requests
from neuron_llm.runtime.engine.async_engine import AsyncEngine
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.loading import load_engine
from neuron_llm.runtime.engine.phases import StepPhases
from neuron_llm.runtime.watch.observer import NoObserver

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPTS = {f"r{length}": random_prompt(length, seed=length) for length in (3, 20, 33)}


class Lives(NoObserver):
    """Keeps which requests have begun and not ended."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.reasons: dict[str, str] = {}

    def on_request_added(self, request_id: str, at: float) -> None:
        self.begun.add(request_id)

    def on_request_ended(self, request_id: str, at: float, finish_reason: str) -> None:
        self.begun.remove(request_id)
        self.reasons[request_id] = finish_reason


@pytest.fixture(scope="module", params=["sync", "async"])
def loaded(
    request: pytest.FixtureRequest, llama: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Engine:
    artifact: Path = llama.artifact
    if request.param == "async":
        artifact = async_copy(artifact, tmp_path_factory.mktemp("async") / "tiny")
    return load_engine(Artifact.open(artifact), observer=Lives())


@pytest.fixture
def engine(loaded: Engine) -> Engine:
    lives(loaded).begun.clear()
    lives(loaded).reasons.clear()
    return loaded


def lives(engine: Engine) -> Lives:
    assert isinstance(engine._observer, Lives)
    return engine._observer


def add_all(engine: Engine) -> None:
    for request_id, prompt in PROMPTS.items():
        engine.add_request(request_id, prompt, PARAMS)


def run(engine: Engine) -> dict[str, tuple[int, ...]]:
    add_all(engine)
    tokens: dict[str, tuple[int, ...]] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.result is not None:
                tokens[output.request_id] = output.result.outputs[0].token_ids
    return tokens


def interrupted_at(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, interrupted as soon as its call of that number has done its work."""
    num_calls = 0

    def call(*arguments: Any, **fields: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        result = function(*arguments, **fields)
        if num_calls == count:
            raise KeyboardInterrupt
        return result

    return call


def check_empty_and_right(engine: Engine, expected: dict[str, tuple[int, ...]]) -> None:
    assert not engine.scheduler.requests
    assert not engine.requests._live and not engine.runner.sampling_states
    kv = engine.scheduler.kv_cache_manager
    assert kv.num_free_blocks == kv.block_pool.num_usable_blocks
    assert not lives(engine).begun
    assert run(engine) == expected


@pytest.mark.parametrize("where", ["scheduler", "runner", "detokenizer", "observer"])
def test_after_an_interrupt_while_a_request_is_added_the_engine_is_empty_and_right(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    expected = run(engine)
    target, name = {
        "scheduler": (engine.scheduler, "add_request"),
        "runner": (engine.runner, "add_sampling"),
        "detokenizer": (live_requests, "IncrementalDetokenizer"),
        "observer": (engine._observer, "on_request_added"),
    }[where]
    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupted_at(2, getattr(target, name)))
        with pytest.raises(KeyboardInterrupt):
            add_all(engine)
    check_empty_and_right(engine, expected)


@pytest.mark.parametrize("num_steps", [0, 3])
def test_after_an_interrupt_while_requests_are_aborted_the_engine_is_empty_and_right(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, num_steps: int
) -> None:
    expected = run(engine)
    add_all(engine)
    for _ in range(num_steps):
        engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(engine.requests, "_end", interrupted_at(1, engine.requests._end))
        with pytest.raises(KeyboardInterrupt):
            engine.abort_requests(["r3", "r20"])
    check_empty_and_right(engine, expected)


def test_the_graph_thread_is_there_before_the_first_step(loaded: Engine) -> None:
    # Started by a step, an interrupt could leave two that run graphs at once.
    if isinstance(loaded, AsyncEngine):
        num_threads = threading.active_count()
        run(loaded)
        assert threading.active_count() == num_threads


def test_a_refused_request_touches_no_other(engine: Engine) -> None:
    expected = run(engine)
    add_all(engine)
    with pytest.raises(RequestError):
        engine.add_request("r3", [1], PARAMS)
    with pytest.raises(RequestError):
        engine.add_request("long", [1] * 64, PARAMS)
    assert lives(engine).begun == set(PROMPTS)
    engine.abort_requests(PROMPTS)
    check_empty_and_right(engine, expected)


def test_requests_that_an_interrupted_step_forgets_are_told_to_have_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(engine)
    lives(engine).reasons.clear()
    add_all(engine)
    with monkeypatch.context() as patch:
        patch.setattr(StepPhases, "publish", interrupted_at(3, StepPhases.publish))
        with pytest.raises(KeyboardInterrupt):
            while True:
                engine.step()
    assert lives(engine).reasons == dict.fromkeys(PROMPTS, "abort")
    check_empty_and_right(engine, expected)
