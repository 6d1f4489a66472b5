"""Lowered graphs run on XLA's CPU device over one KV cache, from their bytes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch
from lowered_graph import LoweredGraph, named_caches
from xla_device import bindings, torch_xla

from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.scheduler.buckets import Bucket


class XlaSession:
    """A session as the runtime knows it, weights and caches on the device once for all graphs.

    Args:
        graphs: by their buckets.
        weights: by the names that the checkpoint gives them.
        kv_caches: K and V of every layer in turn; what they hold is what the first step finds.

    Attributes:
        kv_caches: on the device, as the last step left them.
    """

    def __init__(
        self,
        graphs: Mapping[Bucket, LoweredGraph],
        weights: Mapping[str, torch.Tensor],
        kv_caches: Sequence[torch.Tensor],
    ) -> None:
        self._device = torch_xla.device()
        self._graphs = {bucket: (graph, graph.computation()) for bucket, graph in graphs.items()}
        self._weights = self._on_device(weights)
        self._constants = {
            bucket: self._on_device(graph.constants) for bucket, graph in graphs.items()
        }
        self.kv_caches = list(self._on_device(named_caches(list(kv_caches))).values())
        torch_xla.sync()

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run a step and return its logits, or its tokens, on the host."""
        graph, computation = self._graphs[bucket]
        values = {
            **self._weights,
            **self._constants[bucket],
            **self._on_device(asdict(inputs)),
            **named_caches(self.kv_caches),
        }
        arguments = [values[name] for name in graph.parameters]
        result: torch.Tensor
        result, *self.kv_caches = bindings._xla_user_computation(
            "neuron_llm::graph", arguments, computation
        )
        torch_xla.sync()
        return result.cpu()

    def _on_device(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor.detach().to(self._device) for name, tensor in tensors.items()}
