"""From a graph's specification to the function that is compiled, and to its exported form.

The exported form, in core operators, is what `static_graph.py` judges and what the cache key is
the hash of. No weight is loaded: parameters are zeros that were never written, which cost no
memory, and the graph is the same for every fine-tune of an architecture.
"""

from __future__ import annotations

from typing import Any

import torch

from neuron_llm.backends.graph.empty_model import build_model, empty_kv_cache
from neuron_llm.backends.graph.experts import DENSE_EXPERTS_NAME
from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.lazy_zeros import lazy_zeros
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.neuron.graph.functional_attention import FUNCTIONAL_ATTENTION_NAME
from neuron_llm.backends.neuron.graph.functional_graph import FunctionalGraph
from neuron_llm.backends.neuron.graph.torch_releases import core_form
from neuron_llm.backends.neuron.target import NeuronTarget


def functional_graph(spec: GraphSpec, target: NeuronTarget) -> FunctionalGraph:
    """Return the function of one bucket, its parameters zero."""
    model: Any = build_model(spec, attention=FUNCTIONAL_ATTENTION_NAME, experts=DENSE_EXPERTS_NAME)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        parameter.data = lazy_zeros(parameter.shape, parameter.dtype)
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
