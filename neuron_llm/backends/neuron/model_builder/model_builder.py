"""One bucket's graph by NxD Core's ModelBuilder: the compiling half of the model_builder binding.

A bucket is traced in seconds and compiled in minutes. Only the compiled program can be kept, so
that each bucket is traced twice: when it is compiled, here, and when all are put together
(`nxd_model.py`). The hash of the HLO tells whether both were the same.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec
from neuron_llm.backends.neuron.graph.binding_table import GRAPH_FILE
from neuron_llm.backends.neuron.graph.constants import TracedProgram, constant_spec, model_tensors
from neuron_llm.backends.neuron.graph.export import example_inputs
from neuron_llm.backends.neuron.graph.functional_graph import FunctionalGraph
from neuron_llm.backends.neuron.graph.torch_releases import torchscript
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.neuron.trace.buffered_graph import BufferedGraph
from neuron_llm.errors import CompileError

HLO_NAME = "traced"


def compile_neff(
    directory: Path,
    function: tuple[FunctionalGraph, Sequence[torch.Tensor]],
    spec: GraphSpec,
    target: NeuronTarget,
    work_dir: Path,
) -> TracedProgram:
    """Compile a graph to a NEFF, which holds neither weights nor states.

    Args:
        directory: takes the NEFF.
        function: the graph, and caches of its shapes.
        spec: its shapes.
        target: what it is compiled for.
        work_dir: where the compiler works and leaves its log.

    Raises:
        CompileError: the program reads what is no weight of the model.
    """
    from neuronx_distributed.trace.model_builder import compile as compile_hlo

    graph = BufferedGraph(*function)
    artifacts = trace_bucket(graph, spec)
    compiled = compile_hlo(
        hlo_module=artifacts.hlo,
        metaneff=artifacts.metaneff,
        compiler_workdir=str(work_dir),
        compiler_args=shlex.join(target.compiler_arguments()),
        key=spec.bucket.name,
    )
    shutil.copyfile(compiled.neff_filepath, directory / GRAPH_FILE)
    return TracedProgram(
        constants=_constants(artifacts, graph, spec.bucket.name),
        returned=(),
        hlo_sha256={HLO_NAME: hlo_sha256(artifacts)},
    )


def trace_bucket(graph: BufferedGraph, spec: GraphSpec) -> Any:
    """Return the trace artifacts of a bucket's graph."""
    from neuronx_distributed import NxDParallelState
    from neuronx_distributed.trace.model_builder import trace

    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    inputs = dict(zip(shapes, example_inputs(spec), strict=True))
    # One core runs one model, so that there is one rank.
    one_rank = NxDParallelState(world_size=1, tensor_model_parallel_size=1)
    with torch.no_grad(), torchscript(), one_rank:
        return trace(graph, kwargs=inputs)


def hlo_sha256(artifacts: Any) -> str:
    """Return the hash of what the compiler is given for these trace artifacts."""
    return hashlib.sha256(artifacts.hlo.SerializeToString(deterministic=True)).hexdigest()


def _constants(artifacts: Any, graph: BufferedGraph, graph_name: str) -> list[ConstantSpec]:
    """Describe what the program reads besides inputs and caches, by the names that it says."""
    tensors = model_tensors(graph)
    names = [n for n in artifacts.weight_name_to_idx if n not in graph.cache_names]
    unknown = [f"`{name}`" for name in names if name not in tensors]
    if unknown:
        raise CompileError(
            f"graph `{graph_name}` reads {', '.join(unknown)}, which is no weight of the model",
            hint="this neuronx-distributed names weights otherwise; use the pinned version",
        )
    return [constant_spec(name, tensors[name]) for name in names]
