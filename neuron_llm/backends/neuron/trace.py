"""Build one bucket's graph with `torch_neuronx.trace`: the compiling half of the trace binding.

Runs in a process of its own, one per graph (`build_pool.py`), on any host: no device is touched.
Weights stay outside the compiled program, so that they can be replaced when it is loaded; those
that it is saved with are zeros.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import torch

from neuron_llm.backends.graph_cache import GraphCache
from neuron_llm.backends.graph_files import write_description
from neuron_llm.backends.graph_key import exported_key
from neuron_llm.backends.inputs import input_shapes
from neuron_llm.backends.neuron.binding_table import (
    GRAPH_FILE,
    binding_table,
    write_binding_table,
)
from neuron_llm.backends.neuron.environment import graph_environment
from neuron_llm.backends.neuron.export import (
    example_inputs,
    export_function,
    functional_graph,
    zero_kv_caches,
)
from neuron_llm.backends.neuron.functional_graph import StatefulGraph
from neuron_llm.backends.neuron.static_graph import require_static
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.neuron.torch_releases import save_script, torchscript
from neuron_llm.backends.protocol import ConstantSpec, GraphSpec, TensorSpec

_MODEL_PREFIX = "function.model."


def build_into_cache(
    spec: GraphSpec, config_key: str, cache_dir: Path, target: NeuronTarget
) -> None:
    """Trace and compile a graph unless the cache has it; the cache then has it.

    Whoever holds the lock builds; others wait for it and find the result.

    Args:
        spec: the graph.
        config_key: its first-level key.
        cache_dir: root of the cache.
        target: what it is compiled for.

    Raises:
        CompileError: the graph is not static.
    """
    cache = GraphCache(cache_dir)
    with cache.lock(config_key):
        if cache.find(config_key) is not None:
            return
        started = time.perf_counter()
        graph = functional_graph(spec, target)
        caches = zero_kv_caches(spec, graph.model)
        exported = export_function(graph, (*example_inputs(spec), *caches))
        require_static(exported, spec.bucket.name)
        graph_key = exported_key(exported, [target.compiler_arguments(), graph_environment()])
        with cache.lock(graph_key):
            if cache.graph_directory(graph_key) is None:
                work_dir = cache.root / "neuronx-cc" / f"{spec.bucket.name}-{graph_key[:12]}"
                stateful = StatefulGraph(graph, caches)
                with cache.new_entry(graph_key) as directory:
                    traced = trace_graph(stateful, spec, target, work_dir)
                    save_script(traced, directory / GRAPH_FILE)
                    _describe(directory, stateful, (spec, target), work_dir, started)
        cache.link(config_key, graph_key)


def trace_graph(
    stateful: StatefulGraph, spec: GraphSpec, target: NeuronTarget, work_dir: Path
) -> Any:
    """Return the compiled graph as a TorchScript module.

    Args:
        stateful: the graph with its caches.
        spec: its shapes.
        target: what it is compiled for.
        work_dir: where the compiler works and leaves its log; emptied first, kept afterwards.
    """
    import torch_neuronx

    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    print(f"the compiler works in {work_dir}", flush=True)
    with torch.no_grad(), torchscript():
        return torch_neuronx.trace(
            stateful,
            example_inputs(spec),
            input_output_aliases=stateful.aliases(),
            compiler_workdir=str(work_dir),
            compiler_args=target.compiler_arguments(),
            inline_weights_to_neff=False,
            cpu_backend=True,
        )


def weight_constants(stateful: StatefulGraph) -> list[ConstantSpec]:
    """Describe the weights of a graph: all parameters that are no cache, tied ones by each name."""
    return [
        ConstantSpec(
            name=name,
            weight=name.removeprefix(_MODEL_PREFIX),
            shape=tuple(parameter.shape),
            dtype=str(parameter.dtype).removeprefix("torch."),
        )
        for name, parameter in stateful.named_parameters(remove_duplicate=False)
        if name.startswith(_MODEL_PREFIX)
    ]


def _describe(
    directory: Path,
    stateful: StatefulGraph,
    what: tuple[GraphSpec, NeuronTarget],
    work_dir: Path,
    started: float,
) -> None:
    spec, target = what
    constants = weight_constants(stateful)
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    table = binding_table(
        inputs=list(shapes),
        weights=[constant.weight for constant in constants],
        num_layers=len(stateful.kv_caches) // 2,
        compiler_arguments=target.compiler_arguments(),
        work_dir=work_dir,
    )
    write_binding_table(directory, table)
    write_description(
        directory,
        inputs=[TensorSpec(name, shape, "int32") for name, shape in shapes.items()],
        constants=constants,
        compile_seconds=time.perf_counter() - started,
    )
