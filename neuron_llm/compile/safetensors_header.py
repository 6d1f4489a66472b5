"""What a checkpoint's safetensors files contain, read from their headers: names, dtypes, sizes."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

_FLOAT_DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_QUANTIZED_DTYPES = ("F8", "F6", "F4", "U8", "I8")
_LFS_POINTER = b"version https://git-lfs"
_LENGTH_BYTES = 8
# The format's own limit.
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file: its name, the format's name of its dtype, and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class WeightsSummary:
    """The weights of one checkpoint.

    Attributes:
        num_elements: numbers in each tensor, by name.
        output_projection: name of the tensor that turns hidden states into logits.
        dtype: the one that most numbers are stored in.
    """

    num_elements: dict[str, int]
    output_projection: str
    dtype: str

    @property
    def has_output_projection(self) -> bool:
        """Whether the output projection is stored beside the embedding."""
        return self.output_projection in self.num_elements

    def count_parameters(self, tie_word_embeddings: bool) -> int:
        """Return the number of parameters; a stored copy of a tied projection does not count."""
        total = sum(self.num_elements.values())
        if tie_word_embeddings:
            total -= self.num_elements.get(self.output_projection, 0)
        return total


def summarise_weights(model_dir: Path) -> WeightsSummary | None:
    """Return what the directory's safetensors hold, or None when it has none.

    Raises:
        ModelNotFoundError: a file is missing, cut short, or only a pointer to the real one.
        UnsupportedModelError: the weights are stored in a quantised dtype.
    """
    paths = _weight_files(model_dir)
    tensors = [tensor for path in paths for tensor in read_header(path)]
    for tensor in tensors:
        if tensor.dtype.startswith(_QUANTIZED_DTYPES):
            raise UnsupportedModelError(
                f"`{tensor.name}` in `{model_dir}` is stored as {tensor.dtype}, a quantised dtype",
                hint="give the unquantised checkpoint of the same model, or a `.gguf` file",
            )
    weights = [tensor for tensor in tensors if tensor.dtype in _FLOAT_DTYPES]
    if not weights:
        return None
    num_elements = {tensor.name: tensor.num_elements for tensor in weights}
    return WeightsSummary(num_elements, "lm_head.weight", _FLOAT_DTYPES[_main_dtype(weights)])


def read_shapes(model_dir: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor in the directory's safetensors, by name.

    Raises:
        ModelNotFoundError: see `summarise_weights`.
    """
    tensors = (tensor for path in _weight_files(model_dir) for tensor in read_header(path))
    return {tensor.name: tensor.shape for tensor in tensors}


def read_header(path: Path) -> list[TensorInfo]:
    """Read the header of one safetensors file, and check that the file is as long as it says.

    Raises:
        ModelNotFoundError: see `summarise_weights`.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS_POINTER))
            header_bytes = int.from_bytes(start[:_LENGTH_BYTES], "little")
            file.seek(_LENGTH_BYTES)
            header = file.read(min(header_bytes, _MAX_HEADER_BYTES))
        actual_bytes = path.stat().st_size
    except OSError as error:
        raise _damaged(path, f"is not readable: {error.strerror}") from error
    if start == _LFS_POINTER:
        raise ModelNotFoundError(
            f"`{path}` is a Git LFS pointer, not the weights",
            hint="run `git lfs pull` in the model's directory",
        )
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        tensors = [
            TensorInfo(name, str(entry["dtype"]), tuple(map(int, entry["shape"])))
            for name, entry in entries.items()
        ]
        data_bytes = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise _damaged(path, "is no safetensors file") from error
    needed_bytes = _LENGTH_BYTES + header_bytes + data_bytes
    if actual_bytes < needed_bytes:
        raise _damaged(path, f"is cut short: {actual_bytes} of {needed_bytes} bytes")
    return tensors


def _weight_files(model_dir: Path) -> list[Path]:
    """The files that loading reads: one, or the shards of the index, and no other copies."""
    single = model_dir / "model.safetensors"
    index = model_dir / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        return []
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        paths = [model_dir / name for name in shards]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(index, "is no index of safetensors files") from error
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise _damaged(model_dir, f"lacks {len(missing)} of {len(paths)} files: `{missing[0]}`")
    return paths


def _main_dtype(tensors: Iterable[TensorInfo]) -> str:
    elements_by_dtype: Counter[str] = Counter()
    for tensor in tensors:
        elements_by_dtype[tensor.dtype] += tensor.num_elements
    return elements_by_dtype.most_common(1)[0][0]


def _damaged(path: Path, what: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"`{path}` {what}", hint="download the model again")
