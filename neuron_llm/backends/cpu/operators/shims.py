"""What a compiled graph calls an operator by: the C functions of `csrc/shims.cpp`."""

from __future__ import annotations

import torch

import neuron_llm.backends.cpu.operators.registration  # noqa: F401  (defines the operators)

OPERATORS = ("linear", "linear_packed", "paged_attention")
_C_TYPES = {
    "Tensor": "AtenTensorHandle",
    "Optional[Tensor]": "AtenTensorHandle*",
    "float": "double",
    "int": "int64_t",
}


def shim_declarations() -> dict[torch._ops.OpOverload, list[str]]:
    """Return the C declaration of every operator, as AOTInductor takes it."""
    overloads = [getattr(torch.ops.neuron_llm, name).default for name in OPERATORS]
    return {overload: [_declaration(overload)] for overload in overloads}


def _declaration(operator: torch._ops.OpOverload) -> str:
    arguments = [f"{_C_TYPES[str(a.type)]} {a.name}" for a in operator._schema.arguments]
    name = operator._schema.name.split("::")[1]
    return f"AOTITorchError aoti_torch_cpu_{name}({', '.join(arguments)}, AtenTensorHandle* ret0)"
