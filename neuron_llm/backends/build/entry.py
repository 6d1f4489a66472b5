"""One graph into the cache: found by what it computes, or compiled by whoever has its lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.files import write_description
from neuron_llm.backends.build.key import exported_key
from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec, TensorSpec


class ExportedGraph(Protocol):
    """A graph of which it is known what it computes, and that can be compiled."""

    @property
    def exported(self) -> torch.export.ExportedProgram:
        """What it computes."""
        ...

    @property
    def flags(self) -> Sequence[object]:
        """What else decides what is compiled, JSON-able."""
        ...

    def compile(self, directory: Path, graph_key: str) -> Sequence[ConstantSpec]:
        """Fill the graph's directory, and return what the compiled graph reads."""
        ...


def build_into_cache(
    cache: GraphCache, spec: GraphSpec, config_key: str, export: Callable[[], ExportedGraph]
) -> None:
    """Export and compile a graph unless the cache has it; the cache then has it.

    Whoever holds a lock works; others wait for it and find the result. Two configurations that lead
    to the same graph export it both, and compile it once.

    Args:
        cache: where it goes.
        spec: the graph.
        config_key: its first-level key.
        export: called only if the cache does not have the key.
    """
    with cache.lock(config_key):
        if cache.find(config_key) is not None:
            return
        started = time.perf_counter()
        graph = export()
        graph_key = exported_key(graph.exported, graph.flags)

        def compile_graph(directory: Path) -> None:
            constants = graph.compile(directory, graph_key)
            write_description(
                directory,
                inputs=_inputs(spec),
                constants=constants,
                compile_seconds=time.perf_counter() - started,
            )

        cache.entry(graph_key, compile_graph)
        cache.link(config_key, graph_key)


def _inputs(spec: GraphSpec) -> list[TensorSpec]:
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    return [TensorSpec(name, shape, "int32") for name, shape in shapes.items()]
