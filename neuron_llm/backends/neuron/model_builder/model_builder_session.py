"""Loaded Neuron graphs over one set of weights and one KV state: the model_builder binding."""

from __future__ import annotations

from typing import Any

import torch

from neuron_llm.backends.artifact_weights import artifact_weights, matching_weight
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.backends.neuron.graph.binding_table import cache_names
from neuron_llm.backends.neuron.graph.torch_releases import torchscript
from neuron_llm.backends.neuron.model_builder.shared_kv_state import SharedKVState
from neuron_llm.backends.protocol import LoadRequest
from neuron_llm.backends.state_transfers import StateTransfers
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler.buckets import Bucket


class ModelBuilderSession:
    """Every graph of an artifact, its weights on the device.

    Args:
        request: what to load.

    Raises:
        ArtifactError: a weight is missing or has another shape or dtype than a graph needs, or the
            installed neuronx-distributed does not take the model of the graphs.
    """

    def __init__(self, request: LoadRequest) -> None:
        weights = artifact_weights(request)
        constants = {
            constant.name: matching_weight(constant, weights, graph.bucket.name)
            for graph in request.graphs
            for constant in graph.constants
        }
        self._model = _load_model(request)
        # A list of one: one rank. The states are none of the weights; they start at zero.
        self._model.set_weights([constants])
        self._model.to_neuron()
        self._state = SharedKVState(self._model, cache_names(request.kv_cache.num_layers))
        self._transfers = StateTransfers()

    @property
    def transfers(self) -> StateTransfers:
        """What moving the KV cache between graphs has cost: nothing, they share it."""
        return self._transfers

    @property
    def key_caches(self) -> list[torch.Tensor]:
        """K of every layer, on the host; see `SharedKVState.on_host` for what that costs."""
        return self._state.on_host()[::2]

    @property
    def value_caches(self) -> list[torch.Tensor]:
        """V of every layer, on the host."""
        return self._state.on_host()[1::2]

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run the bucket's graph; it updates the KV cache.

        Returns:
            logits `[num_seqs, vocab_size]` in the graph's dtype, or tokens `[num_seqs]` int32 of a
            graph that samples.
        """
        self._state.bring_to_device()
        # By name: the shapes of two buckets may be the same. In this mode every tensor stands in a
        # list with one for each rank.
        outputs = self._model(
            **{name: [tensor] for name, tensor in vars(inputs).items()},
            model_name=bucket.name,
            forward_mode="async",
        )
        # The call has only begun. This waits for its end.
        result: torch.Tensor = outputs[0][0].cpu()
        self._state.bring_back()
        return result


def _load_model(request: LoadRequest) -> Any:
    from neuronx_distributed import NxDModel

    if len(request.shared_files) != 1:
        raise ArtifactError(
            "the artifact lacks the model of its graphs", hint="compile the artifact again"
        )
    with torchscript():
        model = NxDModel.load(str(request.shared_files[0]))
    if not isinstance(model, NxDModel):
        # What another release saved comes back as a plain TorchScript module.
        raise ArtifactError(
            "the installed neuronx-distributed does not take the model of the artifact's graphs",
            hint="compile the artifact again",
        )
    return model
