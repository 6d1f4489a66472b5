"""Build one bucket's graph into the cache, by either binding.

Runs in a process of its own, one per graph (`build/pool.py`), on any host.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.entry import build_into_cache
from neuron_llm.backends.build.inventory import COMPILER_DIR
from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec
from neuron_llm.backends.neuron.environment import graph_environment
from neuron_llm.backends.neuron.graph.binding_table import BindingTable, cache_names
from neuron_llm.backends.neuron.graph.constants import TracedProgram
from neuron_llm.backends.neuron.graph.export import (
    TraceableGraph,
    example_inputs,
    export_function,
    traceable_graph,
)
from neuron_llm.backends.neuron.graph.static_graph import require_static
from neuron_llm.backends.neuron.model_builder.model_builder import compile_neff
from neuron_llm.backends.neuron.target import MODEL_BUILDER, NeuronTarget
from neuron_llm.backends.neuron.trace.trace import compile_script


@dataclass(frozen=True)
class _NeuronGraph:
    """A graph on its way through neuronx-cc; see `ExportedGraph`.

    Attributes:
        graph: what is compiled.
        exported: the same in core operators, and static.
        compiler_dir: where the compiler has a folder for each graph.
    """

    graph: TraceableGraph
    exported: torch.export.ExportedProgram
    compiler_dir: Path

    @property
    def flags(self) -> list[object]:
        """See `ExportedGraph.flags`."""
        target = self.graph.target
        return [target.binding, target.compiler_arguments(), graph_environment(target.binding)]

    def compile(self, directory: Path, graph_key: str) -> Sequence[ConstantSpec]:
        """See `ExportedGraph.compile`."""
        name = f"{self.graph.spec.bucket.name}-{graph_key[:12]}"
        return compile_graph(directory, self.graph, self.compiler_dir / name)


def build_graph(spec: GraphSpec, config_key: str, cache: GraphCache, target: NeuronTarget) -> None:
    """Trace and compile a graph unless the cache has it; the cache then has it.

    Args:
        spec: the graph.
        config_key: its first-level key.
        cache: where it goes.
        target: what it is compiled for.

    Raises:
        CompileError: the graph is not static.
    """

    def export() -> _NeuronGraph:
        graph = traceable_graph(spec, target)
        exported = export_function(graph.function, (*example_inputs(spec), *graph.kv_caches))
        require_static(exported, spec.bucket.name)
        return _NeuronGraph(graph, exported, cache.root / COMPILER_DIR)

    build_into_cache(cache, spec, config_key, export)


def compile_graph(directory: Path, graph: TraceableGraph, work_dir: Path) -> Sequence[ConstantSpec]:
    """Fill a graph's directory, and return what the compiled graph reads.

    Args:
        directory: takes the compiled program and its binding table.
        graph: what is compiled.
        work_dir: where the compiler works and leaves its log; emptied first, and kept afterwards.

    Raises:
        CompileError: the program reads what is no weight of the model.
    """
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    print(f"the compiler works in {work_dir}", flush=True)
    is_shared = graph.target.binding == MODEL_BUILDER
    compile_program = compile_neff if is_shared else compile_script
    program = compile_program(directory, graph, work_dir)
    _binding_table(graph, program).write(directory)
    return program.constants


def _binding_table(graph: TraceableGraph, program: TracedProgram) -> BindingTable:
    spec, target = graph.spec, graph.target
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    return BindingTable(
        binding=target.binding,
        inputs=list(shapes),
        outputs=["next_token_ids" if target.samples_greedily else "logits", *program.returned],
        states=cache_names(len(graph.kv_caches) // 2),
        aliases={name: 1 + index for index, name in enumerate(program.returned)},
        weights=[constant.weight for constant in program.constants],
        compiler_arguments=target.compiler_arguments(),
        hlo_sha256=program.hlo_sha256,
    )
