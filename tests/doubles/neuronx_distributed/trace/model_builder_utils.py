from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch


@dataclass(frozen=True)
class ProvidedArgInfo:
    param_name: str
    is_positional: bool
    tensor: torch.Tensor


@dataclass(frozen=True)
class ModelParamInfo:
    param_name: str
    is_positional: bool


@dataclass(frozen=True)
class TraceArtifacts:
    hlo: Any
    metaneff: Any
    flattener: Callable[[dict[str, torch.Tensor]], list[torch.Tensor]]
    packer: Callable[[list[torch.Tensor]], Any]
    weight_name_to_idx: dict[str, int]
    weight_names_to_skip: set[str]
    provided_args: list[ProvidedArgInfo]
    model_params: list[ModelParamInfo]

    def __reduce__(self) -> NoReturn:
        # trace, "Returns": functions are among them, and nothing says that they can be kept.
        raise TypeError("trace artifacts cannot be stored")


@dataclass(frozen=True)
class CompilationArtifacts:
    neff_filepath: str
