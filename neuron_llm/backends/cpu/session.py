"""Loaded CPU graphs over one memory-mapped copy of the weights and one KV cache."""

from __future__ import annotations

import torch

from neuron_llm.backends.artifact_weights import artifact_weights, map_tensors, matching_weight
from neuron_llm.backends.cpu.operators.library import load_library
from neuron_llm.backends.cpu.shared_object import SharedObject
from neuron_llm.backends.cpu.target import CONSTANTS_FILE, GRAPH_FILE
from neuron_llm.backends.graph.inputs import GraphInputs, num_rows, torch_dtype
from neuron_llm.backends.graph.lazy_zeros import lazy_zeros
from neuron_llm.backends.protocol import GraphFiles, LoadRequest
from neuron_llm.scheduler.buckets import Bucket


class CpuSession:
    """Every graph of an artifact, ready to run. No compiler is needed, nothing is unpacked.

    Args:
        request: what to load.

    Raises:
        ArtifactError: a weight is missing or has another shape or dtype than a graph needs.
    """

    def __init__(self, request: LoadRequest) -> None:
        for path in request.shared_files:
            load_library(path)  # Graphs that were linked with it find it by its name.
        shape = request.kv_cache
        cache_shape = (shape.num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
        dtype = torch_dtype(request.dtype)
        self.key_caches = [lazy_zeros(cache_shape, dtype) for _ in range(shape.num_layers)]
        self.value_caches = [lazy_zeros(cache_shape, dtype) for _ in range(shape.num_layers)]
        weights = artifact_weights(request)
        self._graphs = {graph.bucket: _load_graph(graph, weights) for graph in request.graphs}
        self._logits = {
            graph.bucket: torch.zeros((num_rows(graph.bucket), request.vocab_size), dtype=dtype)
            for graph in request.graphs
        }

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run the bucket's graph; it updates the KV cache in place. Other threads run meanwhile.

        Returns:
            logits `[num_seqs, vocab_size]` in the graph's dtype; the next call of the bucket
            overwrites them.
        """
        logits = self._logits[bucket]
        self._graphs[bucket].run([logits, *inputs.as_tuple(), *self.key_caches, *self.value_caches])
        return logits


def _load_graph(graph: GraphFiles, weights: dict[str, torch.Tensor]) -> SharedObject:
    own_path = graph.directory / CONSTANTS_FILE
    tensors = {**weights, **map_tensors(own_path)} if own_path.is_file() else weights
    shared_object = SharedObject(graph.directory / GRAPH_FILE, graph.bucket.name)
    shared_object.set_constants(
        {
            constant.name: matching_weight(constant, tensors, graph.bucket.name)
            for constant in graph.constants
        }
    )
    return shared_object
