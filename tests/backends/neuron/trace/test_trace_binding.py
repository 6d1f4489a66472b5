"""The trace binding on a double of torch_neuronx: tokens as on the CPU, and mistakes that show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from graph_mistakes import compute_in_float64, index_with_int64, write_in_place
from neuron_doubles import (
    BUCKETS,
    FAMILY,
    build_graph,
    build_graphs,
    shallow_spec,
    use_doubles,
)
from safetensors.torch import save_file
from tiny_families import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    PREFILL,
    TARGET,
    InPlaceSession,
    generate,
)
from tiny_models import random_prompt

from neuron_llm.backends.graph.inputs import empty_inputs
from neuron_llm.backends.neuron.graph.binding_table import GRAPH_FILE
from neuron_llm.backends.neuron.graph.functional_attention import FunctionalContext
from neuron_llm.backends.neuron.graph.functional_graph import StatefulGraph
from neuron_llm.backends.neuron.graph.torch_releases import load_script, torchscript
from neuron_llm.backends.neuron.trace.kv_states import KVStates
from neuron_llm.backends.neuron.trace.trace_session import TraceSession
from neuron_llm.backends.protocol import LoadRequest
from neuron_llm.errors import ArtifactError

PROMPTS = [random_prompt(length, seed=length) for length in (3, 9, 21)]
NUM_TOKENS = 5


@pytest.fixture(scope="module")
def load_request(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadRequest]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_doubles(monkeypatch)
        yield build_graphs(tmp_path_factory.mktemp("graphs"))


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return generate(InPlaceSession(FAMILY), PROMPTS, NUM_TOKENS)


def tokens_of(session: TraceSession, chunk: int | None = None) -> list[list[int]]:
    with torchscript(), torch.inference_mode():
        return generate(session, PROMPTS, NUM_TOKENS, chunk)


@pytest.mark.parametrize("chunk", [None, 5])
def test_tokens_are_those_of_the_cpu_backend(
    chunk: int | None, load_request: LoadRequest, expected: list[list[int]]
) -> None:
    session = TraceSession(load_request)
    assert tokens_of(session, chunk) == expected
    # Prefills follow each other in one graph, decodes in the other: the cache moved once.
    assert session.transfers.num_copies == 1
    shape = load_request.kv_cache
    cache_bytes = shape.num_blocks * shape.block_size * shape.num_kv_heads * shape.head_dim * 4
    assert session.transfers.num_bytes == cache_bytes * 2 * shape.num_layers


def test_the_cache_can_be_looked_into_from_the_host(
    load_request: LoadRequest, expected: list[list[int]]
) -> None:
    session = TraceSession(load_request)
    for cache in (*session.key_caches, *session.value_caches):
        cache.fill_(torch.nan)
    assert tokens_of(session) == expected
    written = ~session.key_caches[0].isnan().any(-1).any(-1)
    num_written = sum(len(prompt) + NUM_TOKENS - 1 for prompt in PROMPTS)
    assert int(written.sum()) == num_written


def test_a_graph_of_another_cache_shape_is_refused(load_request: LoadRequest) -> None:
    with pytest.raises(ArtifactError, match="shows 0 KV states where 4 are expected"):
        TraceSession(replace(load_request, kv_cache=replace(load_request.kv_cache, num_blocks=7)))


def test_a_weight_that_is_missing_or_of_another_shape_is_named(
    load_request: LoadRequest, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file({"model.norm.weight": torch.zeros(3)}, weights)
    with pytest.raises(ArtifactError, match=r"needs the weight `.*` \(float32"):
        TraceSession(replace(load_request, weights=weights))


# Mistakes of the running half: the graphs are right.


def forget_state_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVStates, "bring_to", lambda *_: None)


def forget_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch_neuronx.replace_weights", lambda *_: None)


@pytest.mark.parametrize("mistake", [forget_state_copy, forget_weights])
def test_a_mistake_in_running_gives_other_tokens(
    mistake: Callable[[pytest.MonkeyPatch], None],
    load_request: LoadRequest,
    expected: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    assert tokens_of(TraceSession(load_request)) != expected


def test_weights_that_are_not_moved_to_the_device_are_noticed(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch_neuronx.move_trace_to_device", lambda *_: None)
    with pytest.raises(torch.jit.Error, match="the weights are on the host"):
        tokens_of(TraceSession(load_request))


# Mistakes of the compiling half.


def alias_one_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    def aliases(self: StatefulGraph) -> dict[torch.Tensor, int]:
        return {cache: index for index, cache in enumerate(self.kv_caches)}

    monkeypatch.setattr(StatefulGraph, "aliases", aliases)


def depend_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    write = FunctionalContext.write

    def dropped(self: FunctionalContext, index: int, rows: torch.Tensor) -> torch.Tensor:
        self._slots = self._slots[self._slots.nonzero()[:, 0]]
        return write(self, index, rows)

    monkeypatch.setattr(FunctionalContext, "write", dropped)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (alias_one_too_low, "state kv_caches.0 is .*, but output 0 is"),
        (index_with_int64, "int64: aten._to_copy"),
        (write_in_place, "is written in place; return it as an output"),
        (compute_in_float64, "NCC_EVRF004: aten._to_copy.* is float64"),
        (depend_on_data, "nonzero|data-dependent|unbacked|guard"),
    ],
)
def test_a_mistake_in_compiling_is_refused(
    mistake: Callable[[pytest.MonkeyPatch], None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_doubles(monkeypatch)
    mistake(monkeypatch)
    with pytest.raises((RuntimeError, ValueError), match=message):
        build_graph(tmp_path, shallow_spec(PREFILL), TARGET)


def test_keys_and_values_that_change_places_give_other_tokens(
    tmp_path: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def aliases(self: StatefulGraph) -> dict[torch.Tensor, int]:
        return {cache: 1 + (index ^ 1) for index, cache in enumerate(self.kv_caches)}

    use_doubles(monkeypatch)
    monkeypatch.setattr(StatefulGraph, "aliases", aliases)
    session = TraceSession(build_graphs(tmp_path, buckets=[PREFILL]))
    with torchscript(), torch.inference_mode():
        # The second chunk of a prompt reads what the first has written.
        first_tokens = generate(session, PROMPTS, 1, chunk=5)
    assert first_tokens != [tokens[:1] for tokens in expected]


# What the double itself refuses.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda inputs: (inputs[0].long(), *inputs[1:]), "another dtype"),
        (lambda inputs: (inputs[0][:-1], *inputs[1:]), "another shape"),
        (lambda inputs: inputs[:-1], "missing|Expected|argument"),
    ],
)
def test_a_traced_module_takes_what_it_was_traced_with(
    change: Callable[[Any], Any], message: str, load_request: LoadRequest
) -> None:
    import torch_neuronx

    module = load_script(load_request.graphs[0].directory / GRAPH_FILE)
    torch_neuronx.move_trace_to_device(module, 0)
    inputs = empty_inputs(BUCKETS[0], max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
    with pytest.raises((RuntimeError, torch.jit.Error), match=message):
        module(*change(inputs.as_tuple()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compiler_args": []}, "needs --target"),
        ({"compiler_args": "--target trn9"}, "neuronx-cc failed with 2"),
        ({"compiler_args": ["--target", "inf2", "--logical-nc-config=2"]}, "NCC_EARG001"),
        ({"compiler_args": ["--target", "trn2", "--fast"]}, "neuronx-cc failed with 2"),
        ({"cpu_backend": False}, "no device to compile on"),
        ({"input_output_aliases": {torch.zeros(1): 0}}, "no parameter or buffer"),
    ],
)
def test_the_double_refuses_what_is_not_documented(
    options: dict[str, Any], message: str, load_request: LoadRequest
) -> None:
    import torch_neuronx

    given = {"compiler_args": ["--target", "trn2"], "cpu_backend": True, **options}
    with pytest.raises((RuntimeError, ValueError), match=message):
        torch_neuronx.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2), **given)
