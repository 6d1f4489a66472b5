"""A GGUF file's metadata and the table of its tensors, read without the tensors. Knows no torch.

The reader of the `gguf` package builds several arrays for every word of the vocabulary, which takes
seconds; here the vocabulary is stepped over.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import numpy as np
import numpy.typing as npt

from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError
from neuron_llm.scheduler.block_pool import ceil_div

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
# The format's codes of value types, as `struct` names them; strings and arrays are the other two.
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_FLOAT32, _STRING, _ARRAY = 6, 8, 9
_OTHER_TYPE_HINT = "give the same model as another `.gguf` file, such as Q8_0, Q4_K_M, F16 or BF16"


@dataclass(frozen=True)
class GgufTensor:
    """One tensor of a file.

    Attributes:
        name: the format's, such as `blk.0.attn_q.weight`.
        shape: outermost dimension first.
        type_name: how its numbers are stored, such as `Q4_K`.
        offset: where they begin, in bytes from the start of the file.
        row_bytes: bytes of one row along the innermost dimension.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    row_bytes: int

    @property
    def num_elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def num_rows(self) -> int:
        """How many rows it has; a vector is one row."""
        return math.prod(self.shape[:-1])

    @property
    def end(self) -> int:
        """Where its numbers end, in bytes from the start of the file."""
        return self.offset + self.num_rows * self.row_bytes


@dataclass(frozen=True)
class GgufHeader:
    """What stands before the numbers of a file.

    Attributes:
        path: the file.
        metadata: values by key; arrays of strings are left out.
        tensors: by name, in the file's order.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    def read(self, tensor: GgufTensor, start: int, num_rows: int) -> npt.NDArray[np.uint8]:
        """Read the stored bytes of some rows of a tensor, `[num_rows, row_bytes]`."""
        num_bytes, offset = num_rows * tensor.row_bytes, tensor.offset + start * tensor.row_bytes
        # Read, not mapped: mapped pages would count as this process's memory.
        stored = np.fromfile(self.path, dtype=np.uint8, count=num_bytes, offset=offset)
        return stored.reshape(num_rows, tensor.row_bytes)


def read_gguf_header(path: Path) -> GgufHeader:
    """Read what stands before the numbers, and check that all the numbers are there.

    Raises:
        ModelNotFoundError: the file is no GGUF file, or cut short.
        UnsupportedModelError: a tensor is stored in a way that cannot be expanded, or the extra
            `gguf` is not installed.
    """
    _require_gguf_package(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(path, data)
    # An empty file cannot be mapped; the rest is what arbitrary bytes lead to.
    except (ValueError, OSError, struct.error) as error:
        raise _damaged(path, str(error)) from error


class _Cursor:
    """A place in the file that moves on with every value read; past the end is a `ValueError`."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def take(self, num_bytes: int) -> int:
        """Step over bytes and return where they begin."""
        start = self.position
        if num_bytes > len(self._data) - start:
            raise ValueError(f"it ends after {len(self._data)} bytes, in the middle of its header")
        self.position += num_bytes
        return start

    def numbers(self, codes: str) -> tuple[Any, ...]:
        return struct.unpack_from(f"<{codes}", self._data, self.take(struct.calcsize(f"<{codes}")))

    def string(self) -> str:
        (length,) = self.numbers("Q")
        start = self.take(length)
        return self._data[start : start + length].decode("utf-8")

    def value(self, type_code: int) -> Any:
        """Read a value; of an array of strings only its place, and None stands for it."""
        if type_code == _STRING:
            return self.string()
        if type_code == _ARRAY:
            return self._array()
        return self._array_of_numbers(type_code, 1)[0]

    def _array(self) -> list[Any] | None:
        type_code, length = self.numbers("IQ")
        if type_code != _STRING:
            return self._array_of_numbers(type_code, length)
        for _ in range(length):
            self.take(self.numbers("Q")[0])
        return None

    def _array_of_numbers(self, type_code: int, length: int) -> list[Any]:
        if type_code not in _NUMBERS:
            raise ValueError(f"it holds a value of the unknown type {type_code}")
        code = _NUMBERS[type_code]
        values = list(self.numbers(f"{length}{code}"))
        if type_code == _FLOAT32:
            # The shortest decimal that is this number: 1e-05, not 9.999999747378752e-06.
            values = [float(str(np.float32(value))) for value in values]
        return values


def _parse(path: Path, data: mmap.mmap) -> GgufHeader:
    if data[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it does not begin with `GGUF`")
    cursor = _Cursor(data)
    cursor.take(len(_MAGIC))
    (version,) = cursor.numbers("I")
    if version not in _VERSIONS:
        # The other byte order puts the version's lowest byte highest.
        what = "is big-endian" if version and not version % (1 << 24) else f"is version {version}"
        raise UnsupportedModelError(
            f"`{path}` {what} GGUF", hint="give a little-endian file of version 2 or 3"
        )
    num_tensors, num_values = cursor.numbers("QQ")
    metadata = {}
    for _ in range(num_values):
        key = cursor.string()
        metadata[key] = cursor.value(*cursor.numbers("I"))
    entries = [_read_entry(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"its `general.alignment` is {alignment}")
    start = ceil_div(cursor.position, alignment) * alignment
    tensors = {entry[0]: _tensor(path, entry, start) for entry in entries}
    if len(tensors) < num_tensors:
        raise ValueError("it has two tensors of one name")
    end = max((tensor.end for tensor in tensors.values()), default=0)
    if len(data) < end:
        raise ValueError(f"it has {len(data)} of {end} bytes")
    kept = {key: value for key, value in metadata.items() if value is not None}
    return GgufHeader(path, kept, tensors)


def _read_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """The name, shape, type code and offset of one tensor."""
    name = cursor.string()
    (num_dimensions,) = cursor.numbers("I")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise ValueError(f"its tensor `{name}` has {num_dimensions} dimensions")
    # The format names the innermost dimension first.
    shape = cursor.numbers("Q" * num_dimensions)[::-1]
    type_code, offset = cursor.numbers("IQ")
    return name, shape, type_code, offset


def _tensor(path: Path, entry: tuple[str, tuple[int, ...], int, int], start: int) -> GgufTensor:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    name, shape, type_code, offset = entry
    try:
        tensor_type = GGMLQuantizationType(type_code)
    except ValueError:
        _refuse_type(path, name, f"the GGML type {type_code}, which is not known here")
    if not _can_expand(tensor_type.name):
        _refuse_type(path, name, f"{tensor_type.name}, which cannot be expanded")
    block_size, block_bytes = GGML_QUANT_SIZES[tensor_type]
    if shape[-1] % block_size or not all(shape):
        raise ValueError(
            f"its tensor `{name}` is {list(shape)}, which {tensor_type.name} blocks of {block_size}"
            " do not fill"
        )
    row_bytes = shape[-1] // block_size * block_bytes
    return GgufTensor(name, shape, tensor_type.name, start + offset, row_bytes)


def _can_expand(type_name: str) -> bool:
    """Whether the package has a way from a storage type to plain numbers."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    tensor_type = GGMLQuantizationType[type_name]
    one_block = np.zeros((1, GGML_QUANT_SIZES[tensor_type][1]), np.uint8)
    try:
        dequantize(one_block, tensor_type)
    except NotImplementedError:
        return False
    return True


def _refuse_type(path: Path, name: str, stored: str) -> Never:
    raise UnsupportedModelError(
        f"`{name}` in `{path}` is stored as {stored}", hint=_OTHER_TYPE_HINT
    )


def _require_gguf_package(path: Path) -> None:
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise UnsupportedModelError(
            f"reading `{path}` needs the `gguf` package",
            hint="run `pip install 'neuron-llm[gguf]'`",
        ) from error


def _damaged(path: Path, reason: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"`{path}` is no complete GGUF file: {reason}", hint="download the file again"
    )
