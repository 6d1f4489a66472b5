"""Caches that a module keeps as buffers and replaces: the form that NxD Core's tracing takes."""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES
from graph_cases import CASES
from lowered_graph import lower, lower_graph, named_inputs
from tiny_families import graph_spec

from neuron_llm.backends.neuron.graph.export import functional_graph, zero_kv_caches
from neuron_llm.backends.neuron.trace.buffered_graph import BufferedGraph


class _ShowsBuffers(torch.nn.Module):
    """A buffered graph that returns what it has put into its buffers."""

    def __init__(self, graph: BufferedGraph) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.graph(*inputs)
        return (result, *(self.graph.get_buffer(name) for name in self.graph.cache_names))


@pytest.mark.parametrize("case", ["prefill_in_segments", "decode", "decode_sampled"])
@pytest.mark.parametrize("family", FAMILIES)
def test_buffers_lower_to_the_bytes_of_the_pure_function(family: str, case: str) -> None:
    spec, target = graph_spec(family, CASES[case].bucket), CASES[case].target
    function = functional_graph(spec, target)
    pure = lower_graph(function, spec)
    graph = BufferedGraph(functional_graph(spec, target), zero_kv_caches(spec, function.model))
    assert lower(_ShowsBuffers(graph), named_inputs(spec)).hlo == pure.hlo
