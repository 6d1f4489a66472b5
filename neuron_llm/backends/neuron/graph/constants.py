"""The weights that a graph reads, by the names that its module and the artifact have for them."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from neuron_llm.backends.graph.spec import ConstantSpec

# Where the model is in the modules that are traced.
_MODEL_PREFIX = "function.model."


def model_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers of the model in a traced module, tied ones by each name."""
    tensors: Iterable[tuple[str, torch.Tensor]] = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: tensor for name, tensor in tensors if name.startswith(_MODEL_PREFIX)}


def constant_spec(name: str, tensor: torch.Tensor) -> ConstantSpec:
    """Describe a tensor of `model_tensors`; the checkpoint names it without our modules."""
    return ConstantSpec(
        name=name,
        weight=name.removeprefix(_MODEL_PREFIX),
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )
