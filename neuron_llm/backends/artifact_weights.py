"""The weights of an artifact as its graphs read them: mapped into memory, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from neuron_llm.backends.graph.spec import ConstantSpec
from neuron_llm.backends.protocol import LoadRequest
from neuron_llm.errors import ArtifactError


def map_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file by name; nothing is read before it is used."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def artifact_weights(request: LoadRequest) -> dict[str, torch.Tensor]:
    """Return the weights that all graphs share, tied ones by each of their names."""
    weights = map_tensors(request.weights)
    for alias, stored in request.weight_aliases.items():
        if stored in weights:  # Otherwise the graph that needs it says so.
            weights[alias] = weights[stored]
    return weights


def matching_weight(
    constant: ConstantSpec, weights: Mapping[str, torch.Tensor], graph_name: str
) -> torch.Tensor:
    """Return the weight that fills a constant of a graph.

    Raises:
        ArtifactError: it is missing, or has another shape or dtype than the graph needs.
    """
    tensor = weights.get(constant.weight)
    needed = f"{constant.dtype} {list(constant.shape)}"
    if tensor is None:
        raise ArtifactError(
            f"graph `{graph_name}` needs the weight `{constant.weight}` ({needed}), "
            "which the artifact does not have",
            hint="compile the artifact again",
        )
    found = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    if found != needed:
        raise ArtifactError(
            f"weight `{constant.weight}` is {found}, but graph `{graph_name}` needs {needed}",
            hint="compile the artifact again",
        )
    return tensor
