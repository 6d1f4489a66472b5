"""Build one bucket's graph into the cache, by either binding.

Runs in a process of its own, one per graph (`build_pool.py`), on any host.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.files import write_description
from neuron_llm.backends.build.inventory import COMPILER_DIR
from neuron_llm.backends.build.key import exported_key
from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import GraphSpec, TensorSpec
from neuron_llm.backends.neuron.environment import graph_environment
from neuron_llm.backends.neuron.graph.binding_table import BindingTable, cache_names
from neuron_llm.backends.neuron.graph.constants import TracedProgram
from neuron_llm.backends.neuron.graph.export import (
    example_inputs,
    export_function,
    functional_graph,
    zero_kv_caches,
)
from neuron_llm.backends.neuron.graph.functional_graph import FunctionalGraph
from neuron_llm.backends.neuron.graph.static_graph import require_static
from neuron_llm.backends.neuron.model_builder.model_builder import compile_neff
from neuron_llm.backends.neuron.target import MODEL_BUILDER, NeuronTarget
from neuron_llm.backends.neuron.trace.trace import compile_script


@dataclass(frozen=True)
class Build:
    """One graph on its way.

    Attributes:
        spec: its shapes.
        target: what it is compiled for.
        graph: the function.
        kv_caches: zero, of its shapes.
        work_dir: where the compiler works and leaves its log.
        started: when building it began, by `time.perf_counter`.
    """

    spec: GraphSpec
    target: NeuronTarget
    graph: FunctionalGraph
    kv_caches: list[torch.Tensor]
    work_dir: Path
    started: float


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
        environment = graph_environment(target.binding)
        flags = [target.binding, target.compiler_arguments(), environment]
        graph_key = exported_key(exported, flags)
        with cache.lock(graph_key):
            if cache.graph_directory(graph_key) is None:
                work_dir = cache.root / COMPILER_DIR / f"{spec.bucket.name}-{graph_key[:12]}"
                with cache.new_entry(graph_key) as directory:
                    compile_graph(directory, Build(spec, target, graph, caches, work_dir, started))
        cache.link(config_key, graph_key)


def compile_graph(directory: Path, build: Build) -> None:
    """Fill a graph's directory; the compiler's own is emptied first, and kept afterwards.

    Raises:
        CompileError: the program reads what is no weight of the model.
    """
    shutil.rmtree(build.work_dir, ignore_errors=True)
    build.work_dir.mkdir(parents=True)
    print(f"the compiler works in {build.work_dir}", flush=True)
    compile_program = compile_neff if build.target.binding == MODEL_BUILDER else compile_script
    program = compile_program(
        directory, (build.graph, build.kv_caches), build.spec, build.target, build.work_dir
    )
    _describe(directory, program, build)


def _describe(directory: Path, program: TracedProgram, build: Build) -> None:
    spec, target = build.spec, build.target
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    BindingTable(
        binding=target.binding,
        inputs=list(shapes),
        outputs=["next_token_ids" if target.samples_greedily else "logits", *program.returned],
        states=cache_names(len(build.kv_caches) // 2),
        aliases={name: 1 + index for index, name in enumerate(program.returned)},
        weights=[constant.weight for constant in program.constants],
        compiler_arguments=target.compiler_arguments(),
        hlo_sha256=program.hlo_sha256,
    ).write(directory)
    write_description(
        directory,
        inputs=[TensorSpec(name, shape, "int32") for name, shape in shapes.items()],
        constants=program.constants,
        compile_seconds=time.perf_counter() - build.started,
    )
