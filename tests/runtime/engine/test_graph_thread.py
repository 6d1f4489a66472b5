"""The thread that runs the graphs of a step ahead: its cores, and what interrupts leave of it."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import pytest
import torch
from conftest import Compiled
from engine_streams import async_copy
from tiny_models import random_prompt

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.runtime.engine.async_engine import AsyncEngine
from neuron_llm.runtime.engine.graph_thread import GraphThread, HandedOver
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.engine.step import SampledStep


@pytest.fixture(scope="module")
def artifact(llama: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return async_copy(llama.artifact, tmp_path_factory.mktemp("async") / "tiny")


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_graphs_run_with_as_many_threads_as_torch_was_given(artifact: Path) -> None:
    # A graph calls OpenMP without torch, and OpenMP keeps a number for each thread that calls it.
    count_threads = ctypes.CDLL(None).omp_get_max_threads
    assert count_threads() == 3
    engine = AsyncEngine(Artifact.open(artifact), EngineOptions(self_test=False))
    assert engine._graph_thread.hand_over(count_threads).result() == 3


def test_steps_that_an_interrupt_leaves_in_the_thread_share_no_inputs_with_later_ones(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(artifact)
    engine, session = llm.engine, llm.engine.runner.session
    assert isinstance(engine, AsyncEngine)
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    prompts = [random_prompt(length, seed=length) for length in (3, 5, 7)]
    expected = [output.outputs for output in llm.generate(prompts, params)]
    goes_on, execute = Event(), session.execute
    seen: list[GraphInputs] = []

    def held(bucket: Any, inputs: GraphInputs) -> torch.Tensor:
        assert goes_on.wait(timeout=60)
        seen.append(inputs)
        return execute(bucket, inputs)

    monkeypatch.setattr(session, "execute", held)
    for index, prompt in enumerate(prompts):
        engine.add_request(f"stale {index}", prompt, params)
    engine.step()
    assert engine._in_flight is not None
    interrupted = HandedOver[SampledStep](interrupt)
    interrupted.run()
    engine._in_flight = replace(engine._in_flight, sampled=interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    # One prefill is held and another waits behind it. The next is of the same graph.
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, params)
    outputs = engine.step()
    goes_on.set()
    while engine.has_unfinished_requests():
        outputs += engine.step()
    ended = {output.request_id: output.result.outputs for output in outputs if output.result}
    assert [ended[str(index)] for index in range(3)] == expected
    assert all(inputs is not stale for stale in seen[:2] for inputs in seen[2:])


def test_calls_run_in_order_and_what_they_raise_is_raised_where_it_is_asked_for() -> None:
    thread = GraphThread()
    order: list[int] = []
    failed = thread.hand_over(interrupt)
    calls = [thread.hand_over(partial(order.append, index)) for index in range(100)]
    assert [call.result() for call in calls] == [None] * 100
    assert order == list(range(100))
    with pytest.raises(KeyboardInterrupt):
        failed.result()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that interrupts")
def test_an_interrupt_at_any_moment_leaves_the_thread_running() -> None:
    def interrupt_soon(*_: Any) -> None:
        raise KeyboardInterrupt

    thread, num_interrupts = GraphThread(), 0
    before = signal.signal(signal.SIGALRM, interrupt_soon)
    try:
        for index in range(4000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + index % 97))
                while True:
                    thread.hand_over(int).result()
            except KeyboardInterrupt:
                num_interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert num_interrupts == 4000
    assert thread.hand_over(int).result() == 0


def test_the_thread_ends_with_its_object_also_when_that_dies_in_the_thread() -> None:
    thread = GraphThread()
    ended = [one for one in threading.enumerate() if one.name == "graph"]
    goes_on = Event()
    # The call alone keeps its `GraphThread` alive.
    thread.hand_over(partial(wait_with, thread, goes_on))
    del thread
    goes_on.set()
    ended[-1].join(timeout=60)
    assert not ended[-1].is_alive()


def wait_with(_: GraphThread, goes_on: Event) -> None:
    assert goes_on.wait(timeout=60)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt
