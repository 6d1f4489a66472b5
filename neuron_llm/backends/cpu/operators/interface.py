"""The C interface of the operator library, `csrc/operators.h`, in ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_int32, c_int64, c_void_p
from typing import ClassVar

import torch

_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int32: 3}
_OTHER_DTYPE = -1


class TensorStruct(ctypes.Structure):
    """`Tensor`: where a tensor's elements lie, and how."""

    _fields_: ClassVar = [
        ("data", c_void_p),
        ("sizes", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("num_dims", c_int64),
        ("dtype", c_int32),
    ]


class PagedAttentionStruct(ctypes.Structure):
    """`PagedAttention`: one call of the operator of this name."""

    _fields_: ClassVar = [
        ("query", TensorStruct),
        ("key", TensorStruct),
        ("value", TensorStruct),
        ("key_cache", TensorStruct),
        ("value_cache", TensorStruct),
        ("positions", TensorStruct),
        ("slot_mapping", TensorStruct),
        ("block_tables", TensorStruct),
        ("context_lens", TensorStruct),
        ("sinks", TensorStruct),
        ("output", TensorStruct),
        ("scaling", c_double),
        ("softcap", c_double),
        ("sliding_window", c_int64),
    ]


class LinearStruct(ctypes.Structure):
    """`Linear`: one call of `linear` or `linear_packed`."""

    _fields_: ClassVar = [
        ("input", TensorStruct),
        ("weight", TensorStruct),
        ("bias", TensorStruct),
        ("output", TensorStruct),
    ]


def tensor_struct(tensor: torch.Tensor | None) -> TensorStruct:
    """Describe a tensor, which must outlive the call; None is a tensor without elements."""
    if tensor is None:
        return TensorStruct()
    shape = c_int64 * tensor.dim()
    return TensorStruct(
        data=tensor.data_ptr(),
        sizes=shape(*tensor.shape),
        strides=shape(*tensor.stride()),
        num_dims=tensor.dim(),
        dtype=_DTYPES.get(tensor.dtype, _OTHER_DTYPE),
    )
