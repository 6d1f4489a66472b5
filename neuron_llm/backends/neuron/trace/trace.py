"""One bucket's graph by `torch_neuronx.trace`: the compiling half of the trace binding.

No device is touched. Weights stay outside the compiled program, so that they can be replaced when
it is loaded; those that it is saved with are zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec
from neuron_llm.backends.neuron.graph.binding_table import GRAPH_FILE, cache_names
from neuron_llm.backends.neuron.graph.constants import TracedProgram, constant_spec, model_tensors
from neuron_llm.backends.neuron.graph.export import example_inputs
from neuron_llm.backends.neuron.graph.functional_graph import FunctionalGraph, StatefulGraph
from neuron_llm.backends.neuron.graph.torch_releases import save_script, torchscript
from neuron_llm.backends.neuron.target import NeuronTarget


def compile_script(
    directory: Path,
    function: tuple[FunctionalGraph, Sequence[torch.Tensor]],
    spec: GraphSpec,
    target: NeuronTarget,
    work_dir: Path,
) -> TracedProgram:
    """Compile a graph to a TorchScript module, with its states and room for its weights.

    Args:
        directory: takes the module.
        function: the graph, and the caches that it starts with.
        spec: its shapes.
        target: what it is compiled for.
        work_dir: where the compiler works and leaves its log; there, and empty.
    """
    graph, kv_caches = function
    stateful = StatefulGraph(graph, kv_caches)
    save_script(trace_graph(stateful, spec, target, work_dir), directory / GRAPH_FILE)
    return TracedProgram(
        constants=weight_constants(stateful),
        returned=cache_names(len(kv_caches) // 2),
        hlo_sha256={
            path.relative_to(work_dir).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(work_dir.rglob("*.hlo*"))
        },
    )


def trace_graph(
    stateful: StatefulGraph, spec: GraphSpec, target: NeuronTarget, work_dir: Path
) -> Any:
    """Return the compiled graph as a TorchScript module.

    Args:
        stateful: the graph with its caches.
        spec: its shapes.
        target: what it is compiled for.
        work_dir: where the compiler works and leaves its log.
    """
    import torch_neuronx

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
    """Describe the weights of a graph: the parameters of the model, tied ones by each name."""
    return [
        constant_spec(name, tensor)
        for name, tensor in model_tensors(stateful).items()
        if isinstance(tensor, torch.nn.Parameter)
    ]
