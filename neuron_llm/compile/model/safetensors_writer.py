"""Write a safetensors file tensor by tensor, without all of them in memory at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from neuron_llm.backends.graph.spec import TensorSpec

_DTYPE_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
# Data that starts at a multiple of it can be read with the widest vector loads where it is mapped.
_ALIGNMENT = 64


class SafetensorsWriter:
    """A context manager that writes one file; `safetensors` itself wants every tensor at once.

    Args:
        path: the file.
        layout: the tensors, in the order in which they are written.
    """

    def __init__(self, path: Path, layout: Sequence[TensorSpec]) -> None:
        self._path = path
        self._pending = list(reversed(layout))
        self._header = _header(layout)

    def __enter__(self) -> Self:
        """Open the file and write its header."""
        self._file = self._path.open("wb")
        self._file.write(self._header)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()
        assert kind is not None or not self._pending, "a tensor was not written"

    def write(self, tensor: torch.Tensor) -> None:
        """Write the next tensor of the layout."""
        spec = self._pending.pop()
        assert str(tensor.dtype) == f"torch.{spec.dtype}", spec.name
        assert tuple(tensor.shape) == spec.shape, spec.name
        flat = tensor.detach().contiguous().view(-1)
        self._file.write(flat.view(torch.uint8).numpy().data)


def _header(layout: Sequence[TensorSpec]) -> bytes:
    """Return the length of the header, and the header: a JSON object of names and offsets."""
    entries: dict[str, Any] = {}
    start = 0
    for spec in layout:
        size = torch.Size(spec.shape).numel() * getattr(torch, spec.dtype).itemsize
        entries[spec.name] = {
            "dtype": _DTYPE_NAMES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [start, start + size],
        }
        start += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
