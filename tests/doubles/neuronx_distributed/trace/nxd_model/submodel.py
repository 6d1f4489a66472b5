from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from neuronx_distributed.trace.program import MetaNeff, TensorInfo

Weights: TypeAlias = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Submodel:
    """One bucket: its computation, and the program that was compiled of it."""

    program: Any
    hlo: bytes
    metaneff: MetaNeff
    neff: bytes

    def require_own_neff(self, key: str) -> None:
        digest = hashlib.sha256(self.hlo).hexdigest()
        if digest.encode() not in self.neff:
            raise RuntimeError(f"the NEFF of {key} was compiled of another HLO")

    def require_same_tensors(self, other: Submodel, key: str) -> None:
        """Weights and states of one name are one tensor for all programs."""
        for kind in ("weights", "states"):
            mine, theirs = getattr(self.metaneff, kind), getattr(other.metaneff, kind)
            for name in mine.keys() & theirs.keys():
                if mine[name] != theirs[name]:
                    raise ValueError(f"{name} of {key} has another shape or dtype")

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the inputs in order; shapes and dtypes are those that were traced."""
        inputs = self.metaneff.inputs
        if len(args) > len(inputs):
            raise TypeError("more inputs than were traced")
        given = dict(zip(inputs, args, strict=False))
        if twice := given.keys() & kwargs.keys():
            raise TypeError(f"given twice: {sorted(twice)}")
        given |= kwargs
        if given.keys() != inputs.keys():
            raise TypeError(f"the inputs are {list(inputs)}, not {list(given)}")
        for name, info in inputs.items():
            tensor = given[name]
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
                raise TypeError(f"{name} is no CPU tensor")
            if TensorInfo.of(tensor) != info:
                raise ValueError(f"{name} has another shape or dtype than when traced")
        return [given[name] for name in inputs]

    def fits(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        try:
            self.bound(args, kwargs)
        except ValueError:
            return False
        return True
