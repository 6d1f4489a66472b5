"""The model_builder binding on its double: tokens as on the CPU, and mistakes that show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
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
from tiny_families import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    PREFILL,
    InPlaceSession,
    generate,
    graph_spec,
)
from tiny_models import random_prompt

from neuron_llm.backends.build.files import read_built_graph
from neuron_llm.backends.graph.inputs import empty_inputs
from neuron_llm.backends.neuron.graph.binding_table import BINDING_FILE, GRAPH_FILE
from neuron_llm.backends.neuron.graph.functional_attention import FunctionalContext
from neuron_llm.backends.neuron.graph.torch_releases import torchscript
from neuron_llm.backends.neuron.model_builder.model_builder_session import ModelBuilderSession
from neuron_llm.backends.neuron.model_builder.nxd_model import put_together
from neuron_llm.backends.neuron.model_builder.shared_model import shared_model
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.neuron.trace.buffered_graph import BufferedGraph
from neuron_llm.backends.protocol import BuildEvent, BuildRequest, LoadRequest
from neuron_llm.errors import ArtifactError, CompileError

TARGET = NeuronTarget("trn2", 2, binding="model_builder")
PROMPTS = [random_prompt(length, seed=length) for length in (3, 9, 21)]
NUM_TOKENS = 5


@pytest.fixture(scope="module")
def load_request(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadRequest]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_doubles(monkeypatch)
        yield build_graphs(tmp_path_factory.mktemp("graphs"), TARGET)


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return generate(InPlaceSession(FAMILY), PROMPTS, NUM_TOKENS)


def tokens_of(load_request: LoadRequest, chunk: int | None = None) -> list[list[int]]:
    with torchscript(), torch.inference_mode():
        return generate(ModelBuilderSession(load_request), PROMPTS, NUM_TOKENS, chunk)


@pytest.mark.parametrize("chunk", [None, 5])
def test_tokens_are_those_of_the_cpu_backend(
    chunk: int | None, load_request: LoadRequest, expected: list[list[int]]
) -> None:
    assert tokens_of(load_request, chunk) == expected


def test_the_cache_can_be_looked_into_from_the_host_and_nothing_is_counted(
    load_request: LoadRequest, expected: list[list[int]]
) -> None:
    session = ModelBuilderSession(load_request)
    for cache in (*session.key_caches, *session.value_caches):
        assert not cache.any(), "states start at zero"
        cache.fill_(torch.nan)
    with torchscript(), torch.inference_mode():
        assert generate(session, PROMPTS, NUM_TOKENS) == expected
    written = ~session.key_caches[0].isnan().any(-1).any(-1)
    num_written = sum(len(prompt) + NUM_TOKENS - 1 for prompt in PROMPTS)
    assert int(written.sum()) == num_written
    assert (session.transfers.num_copies, session.transfers.num_bytes) == (0, 0)


def test_two_sessions_have_a_state_each(
    load_request: LoadRequest, expected: list[list[int]]
) -> None:
    first, second = ModelBuilderSession(load_request), ModelBuilderSession(load_request)
    with torchscript(), torch.inference_mode():
        assert generate(first, PROMPTS, NUM_TOKENS) == expected
    assert first.key_caches[0].any() and not second.key_caches[0].any()


def test_an_artifact_without_its_model_or_of_another_release_is_refused(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArtifactError, match="lacks the model of its graphs"):
        ModelBuilderSession(replace(load_request, shared_files=()))
    # What cannot be restored comes back as it lies in the file.
    monkeypatch.setattr("neuronx_distributed.NxDModel.load", lambda path: torch.nn.Linear(1, 1))
    with pytest.raises(ArtifactError, match="does not take the model of the artifact's graphs"):
        ModelBuilderSession(load_request)


# Mistakes of the running half: the graphs are right.


@pytest.mark.parametrize(
    ("name", "message"), [("set_weights", "no weights"), ("to_neuron", "not on the device")]
)
def test_a_step_that_is_left_out_when_loading_is_noticed(
    name: str, message: str, load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"neuronx_distributed.NxDModel.{name}", lambda *_: None)
    with pytest.raises(RuntimeError, match=message):
        tokens_of(load_request)


def test_every_call_names_its_bucket(
    load_request: LoadRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuronx_distributed import NxDModel

    named: list[str | None] = []
    forward = NxDModel.forward

    def noted(self: Any, *, model_name: str | None = None, **options: Any) -> Any:
        named.append(model_name)
        return forward(self, model_name=model_name, **options)

    monkeypatch.setattr(NxDModel, "forward", noted)
    session = ModelBuilderSession(load_request)
    # Of one token of one request, a prefill's inputs and a decode's have the same shapes: without
    # a name the double refuses the call (`test_model_builder_double.py`).
    for bucket in BUCKETS:
        inputs = empty_inputs(bucket, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
        session.execute(bucket, inputs)
    assert named == [bucket.name for bucket in BUCKETS]


# Mistakes of the compiling half.


def write_the_buffer_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = BufferedGraph.forward

    # The signature stays: only named parameters can be traced.
    @wraps(forward)
    def forward_in_place(self: BufferedGraph, **inputs: torch.Tensor) -> torch.Tensor:
        before = [self.get_buffer(name) for name in self.cache_names]
        result = forward(self, **inputs)
        for name, cache in zip(self.cache_names, before, strict=True):
            setattr(self, name, cache.copy_(self.get_buffer(name)))
        return result

    monkeypatch.setattr(BufferedGraph, "forward", forward_in_place)


def keep_wider_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    write = FunctionalContext.write

    def widened(self: FunctionalContext, index: int, rows: torch.Tensor) -> torch.Tensor:
        cache = write(self, index, rows)
        self.kv_caches[index] = cache.double()
        return cache

    monkeypatch.setattr(FunctionalContext, "write", widened)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (write_the_buffer_in_place, "key_0 is written in place"),
        (write_in_place, "key_0 is written in place"),
        (keep_wider_caches, "key_0 is replaced by another shape or dtype"),
        (index_with_int64, "int64: aten._to_copy"),
        (compute_in_float64, "NCC_EVRF004: aten._to_copy.* is float64"),
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
    with pytest.raises(RuntimeError, match=message):
        build_graph(tmp_path, shallow_spec(BUCKETS[1]), TARGET)


def test_keys_and_values_that_change_places_give_other_tokens(
    tmp_path: Path, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    forward = BufferedGraph.forward

    @wraps(forward)
    def swapped(self: BufferedGraph, **inputs: torch.Tensor) -> torch.Tensor:
        result = forward(self, **inputs)
        self.key_0, self.value_0 = self.value_0, self.key_0
        return result

    monkeypatch.setattr(BufferedGraph, "forward", swapped)
    session = ModelBuilderSession(build_graphs(tmp_path, TARGET, [PREFILL]))
    with torchscript(), torch.inference_mode():
        # The second chunk of a prompt reads what the first has written.
        first_tokens = generate(session, PROMPTS, 1, chunk=5)
    assert first_tokens != [tokens[:1] for tokens in expected]


def copied(load_request: LoadRequest, directory: Path) -> list[Path]:
    return [
        Path(shutil.copytree(graph.directory, directory / graph.bucket.name))
        for graph in load_request.graphs
    ]


SPECS = tuple(graph_spec(FAMILY, bucket) for bucket in BUCKETS)


def test_the_program_of_another_bucket_is_noticed(
    load_request: LoadRequest, tmp_path: Path
) -> None:
    first, second = copied(load_request, tmp_path)
    shutil.copyfile(second / GRAPH_FILE, first / GRAPH_FILE)
    with pytest.raises(RuntimeError, match="the NEFF of prefill_t16 was compiled of another HLO"):
        put_together(SPECS, [first, second], TARGET, tmp_path / "model.pt")


def test_a_bucket_that_is_traced_otherwise_now_is_named(
    load_request: LoadRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    directories = copied(load_request, tmp_path)
    table = json.loads((directories[1] / BINDING_FILE).read_text())
    table["hlo_sha256"] = {"traced": "0" * 64}
    (directories[1] / BINDING_FILE).write_text(json.dumps(table))
    events: list[BuildEvent] = []
    build_request = BuildRequest(SPECS[1:], tmp_path / "cache", 1, events.append)
    built = [read_built_graph(directory) for directory in directories[1:]]
    # It happens in another process; what is to be told comes back.
    with pytest.raises(CompileError, match="graph `decode_b4_c64` was compiled of another HLO"):
        shared_model(build_request, built, TARGET)
    assert [event.status for event in events] == ["joining", "failed"]
    assert not list((tmp_path / "cache" / "graphs").iterdir())
