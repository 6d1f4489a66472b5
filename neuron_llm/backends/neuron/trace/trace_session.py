"""Loaded Neuron graphs: the running half of the trace binding.

Every graph has its own copy of the weights and of the KV cache on the device (`kv_states.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from neuron_llm.backends.artifact_weights import artifact_weights, matching_weight
from neuron_llm.backends.graph.inputs import GraphInputs, torch_dtype
from neuron_llm.backends.neuron.graph.binding_table import GRAPH_FILE
from neuron_llm.backends.neuron.graph.torch_releases import load_script
from neuron_llm.backends.neuron.trace.kv_states import KVStates
from neuron_llm.backends.protocol import GraphFiles, LoadRequest
from neuron_llm.backends.state_transfers import StateTransfers
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler.buckets import Bucket

# One core for one model: all graphs lie on the first that this process may use.
_DEVICE_ID = 0


class TraceSession:
    """Every graph of an artifact, its weights on the device.

    Args:
        request: what to load.

    Raises:
        ArtifactError: a weight is missing or has another shape or dtype than a graph needs, or a
            graph does not show its KV states.
    """

    def __init__(self, request: LoadRequest) -> None:
        weights = artifact_weights(request)
        self._graphs = {graph.bucket: _load_graph(graph, weights) for graph in request.graphs}
        self._states = KVStates(
            {
                graph.bucket: kv_states_of(self._graphs[graph.bucket], request, graph.bucket.name)
                for graph in request.graphs
            }
        )

    @property
    def transfers(self) -> StateTransfers:
        """What moving the KV cache between graphs has cost so far."""
        return self._states.transfers

    @property
    def key_caches(self) -> list[torch.Tensor]:
        """K of every layer, on the host; see `KVStates.on_host` for what asking for it costs."""
        return self._states.on_host()[::2]

    @property
    def value_caches(self) -> list[torch.Tensor]:
        """V of every layer, on the host."""
        return self._states.on_host()[1::2]

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run the bucket's graph; it updates the KV cache.

        Returns:
            logits `[num_seqs, vocab_size]` in the graph's dtype, or tokens `[num_seqs]` int32 of a
            graph that samples.
        """
        self._states.bring_to(bucket)
        outputs = self._graphs[bucket](*inputs.as_tuple())
        self._states.left_in(bucket)
        # Whether aliased outputs come back too is not documented: the first one is no cache.
        result: torch.Tensor = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
        return result


def kv_states_of(module: Any, request: LoadRequest, graph_name: str) -> list[torch.Tensor]:
    """Return the KV states of a loaded graph, K and V of each layer in turn.

    They are parameters of the module, in the order of the aliases. Whether weights are among its
    parameters too is not documented; no weight of a decoder has the shape of a cache.

    Raises:
        ArtifactError: there are more or fewer than the model has layers for.
    """
    shape, dtype = request.kv_cache, torch_dtype(request.dtype)
    cache_shape = (shape.num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
    states = [p for p in module.parameters() if tuple(p.shape) == cache_shape and p.dtype == dtype]
    if len(states) != 2 * shape.num_layers:
        raise ArtifactError(
            f"graph `{graph_name}` shows {len(states)} KV states where {2 * shape.num_layers} "
            "are expected",
            hint="this torch-neuronx does not give access to states; use the pinned version",
        )
    return states


def _load_graph(graph: GraphFiles, weights: Mapping[str, torch.Tensor]) -> Any:
    import torch_neuronx

    module = load_script(graph.directory / GRAPH_FILE)
    torch_neuronx.replace_weights(
        module, {c.name: matching_weight(c, weights, graph.bucket.name) for c in graph.constants}
    )
    # Otherwise every call would carry all weights to the device.
    torch_neuronx.move_trace_to_device(module, _DEVICE_ID)
    return module
