"""What a compiled graph reads, by the names that its module and the artifact have for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from neuron_llm.backends.graph.spec import ConstantSpec

# Where the model is in the modules that are traced.
_MODEL_PREFIX = "function.model."


@dataclass(frozen=True)
class TracedProgram:
    """What a binding tells about a program that it has compiled: what is not in its file.

    Attributes:
        constants: the weights that it reads.
        returned: caches that it returns after its result, by name and in order.
        hlo_sha256: of what the compiler was given.
    """

    constants: Sequence[ConstantSpec]
    returned: Sequence[str]
    hlo_sha256: Mapping[str, str]


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
