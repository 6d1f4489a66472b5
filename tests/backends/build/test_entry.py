"""A graph into the cache: exported at most once, and compiled once for each way to compile it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.entry import build_into_cache
from neuron_llm.backends.build.files import read_built_graph
from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec
from neuron_llm.scheduler.buckets import DecodeBucket

SPEC = GraphSpec(DecodeBucket(4, 64), {}, "float32", 64, 4, 65)


class Plus(torch.nn.Module):
    def __init__(self, term: int) -> None:
        super().__init__()
        self.term = term

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.term


@dataclass
class Graph:
    """Adds a number; notes what it is compiled to."""

    exported: torch.export.ExportedProgram
    flags: Sequence[object]
    compiled: list[str] = field(default_factory=list)

    def compile(self, directory: Path, graph_key: str) -> Sequence[ConstantSpec]:
        self.compiled.append(graph_key)
        return ()


@pytest.fixture(scope="module")
def exported() -> list[torch.export.ExportedProgram]:
    """The graph that adds 1, and the one that adds 2."""
    return [torch.export.export(Plus(term), (torch.zeros(3),)) for term in (1, 2)]


def build(cache: GraphCache, config_key: str, graph: Graph) -> int:
    """Build a graph; return how often it was exported for that."""
    exports = []

    def export() -> Graph:
        exports.append(config_key)
        return graph

    build_into_cache(cache, SPEC, config_key, export)
    return len(exports)


def test_a_graph_is_exported_once_for_its_key_and_describes_its_inputs(
    tmp_path: Path, exported: list[torch.export.ExportedProgram]
) -> None:
    cache, graph = GraphCache(tmp_path), Graph(exported[0], ["-O2"])
    assert [build(cache, "config", graph) for _ in range(2)] == [1, 0]
    directory = cache.find("config")
    assert directory is not None and [directory.name] == graph.compiled
    shapes = {tensor.name: tensor.shape for tensor in read_built_graph(directory).inputs}
    assert shapes == input_shapes(SPEC.bucket, max_model_len=64, block_size=4)


def test_equal_graphs_of_two_configurations_are_compiled_once(
    tmp_path: Path, exported: list[torch.export.ExportedProgram]
) -> None:
    cache, graph = GraphCache(tmp_path), Graph(exported[0], ["-O2"])
    assert [build(cache, name, graph) for name in ("one", "two")] == [1, 1]
    assert len(graph.compiled) == 1
    assert cache.find("one") == cache.find("two") is not None


def test_another_graph_and_other_flags_are_compiled_by_themselves(
    tmp_path: Path, exported: list[torch.export.ExportedProgram]
) -> None:
    cache = GraphCache(tmp_path)
    graphs = [Graph(program, flags) for program in exported for flags in (["-O2"], ["-O3"])]
    for index, graph in enumerate(graphs):
        build(cache, f"config {index}", graph)
    assert [len(graph.compiled) for graph in graphs] == [1] * 4
    assert len({cache.find(f"config {index}") for index in range(4)}) == 4
