"""From a graph's specification to the function that is compiled, and to its exported form.

The exported form, in core operators, is what `static_graph.py` judges and what the cache key is
the hash of. No weight is loaded: parameters are zeros that were never written, which cost no
memory, and the graph is the same for every fine-tune of an architecture.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import torch

# The model without weights is the CPU backend's; its file is part of the keys of CPU graphs.
from neuron_llm.backends.cpu.export import build_model, empty_kv_cache
from neuron_llm.backends.inputs import input_shapes
from neuron_llm.backends.neuron.dense_experts import DENSE_EXPERTS_NAME
from neuron_llm.backends.neuron.functional_attention import FUNCTIONAL_ATTENTION_NAME
from neuron_llm.backends.neuron.functional_graph import FunctionalGraph
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.neuron.torch_releases import core_form
from neuron_llm.backends.protocol import GraphSpec

_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


def functional_graph(spec: GraphSpec, target: NeuronTarget) -> FunctionalGraph:
    """Return the function of one bucket, its parameters zero."""
    model: Any = build_model(spec, FUNCTIONAL_ATTENTION_NAME)
    use_dense_experts(model)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        parameter.data = _lazy_zeros(parameter)
    return graph_of_model(model, spec, target)


def graph_of_model(
    model: torch.nn.Module, spec: GraphSpec, target: NeuronTarget
) -> FunctionalGraph:
    """Return the function of one bucket over a model that has the functional attention."""
    segment = target.segment_tokens(spec.bucket)
    return FunctionalGraph(
        model,
        segment_blocks=None if segment is None else segment // spec.block_size,
        samples_greedily=target.samples_greedily,
    )


def use_dense_experts(model: Any) -> None:
    """Let a mixture of experts run in the form that lowers; other models stay as they are."""
    if any(getattr(model.config, name, None) for name in _EXPERT_COUNTS):
        model.set_experts_implementation(DENSE_EXPERTS_NAME)


def _lazy_zeros(parameter: torch.Tensor) -> torch.Tensor:
    """Return zeros that take no memory before they are written."""
    memory = mmap.mmap(-1, max(math.prod(parameter.shape) * parameter.dtype.itemsize, 1))
    zeros = torch.frombuffer(memory, dtype=parameter.dtype, count=math.prod(parameter.shape))
    return zeros.view(parameter.shape)


def example_inputs(spec: GraphSpec) -> tuple[torch.Tensor, ...]:
    """Return index inputs of the graph's shapes."""
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    return tuple(torch.zeros(shape, dtype=torch.int32) for shape in shapes.values())


def zero_kv_caches(spec: GraphSpec, model: torch.nn.Module) -> list[torch.Tensor]:
    """Return K and V of every layer in turn, zero."""
    caches = [*empty_kv_cache(spec, model), *empty_kv_cache(spec, model)]
    return [cache.zero_() for cache in caches]


def export_function(
    graph: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> torch.export.ExportedProgram:
    """Return a function in core operators, its shapes static.

    Args:
        graph: a pure function.
        inputs: all of its inputs, the caches included.
    """
    with torch.no_grad():
        return core_form(torch.export.export(graph, inputs, strict=False))
