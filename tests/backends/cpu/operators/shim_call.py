"""Calls of the C functions through which compiled graphs run operators."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_double, c_int32, c_int64, c_void_p, py_object
from typing import Any

import torch
from torch._C._aoti import (
    alloc_tensors_by_stealing_from_void_ptrs,
    unsafe_alloc_void_ptrs_from_tensors,
)

from neuron_llm.backends.cpu.operators.library import OperatorLibrary

_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def call_shim(
    library: OperatorLibrary, operator: str, *arguments: torch.Tensor | float | None
) -> torch.Tensor | None:
    """Return an operator's output, or None if it failed.

    Args:
        library: a loaded library.
        operator: its name, such as `linear`.
        arguments: as the operator takes them; None is an absent tensor.
    """
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    capsules = unsafe_alloc_void_ptrs_from_tensors(tensors)
    handles = iter([c_void_p(_capsule_pointer(c, None)) for c in capsules])
    schema = getattr(torch.ops.neuron_llm, operator).default._schema
    converted: list[Any] = []
    for argument, parameter in zip(arguments, schema.arguments, strict=True):
        if isinstance(argument, torch.Tensor):
            handle = next(handles)
            is_optional = str(parameter.type) == "Optional[Tensor]"
            converted.append(ctypes.byref(handle) if is_optional else handle)
        elif argument is None:
            converted.append(None)
        else:
            is_int = str(parameter.type) == "int"
            converted.append(c_int64(int(argument)) if is_int else c_double(argument))
    output = c_void_p()
    function = ctypes.CDLL(str(library.path))[f"aoti_torch_cpu_{operator}"]
    function.restype = c_int32
    status = function(*converted, ctypes.byref(output))
    alloc_tensors_by_stealing_from_void_ptrs(capsules)
    if status != 0:
        return None
    (tensor,) = alloc_tensors_by_stealing_from_void_ptrs([_new_capsule(output.value, None, None)])
    assert isinstance(tensor, torch.Tensor)
    return tensor


def last_error(library: OperatorLibrary) -> str:
    """Return what the last operator that failed in this thread said, whoever called it."""
    function = ctypes.CDLL(str(library.path)).neuron_llm_last_error
    function.restype = c_char_p
    message: bytes = function()
    return message.decode(errors="replace")
