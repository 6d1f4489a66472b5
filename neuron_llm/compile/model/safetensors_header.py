"""What a checkpoint's safetensors files contain, read from their headers: names, dtypes, sizes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from neuron_llm.compile.model.quantized_tensors import TensorInfo, expanded
from neuron_llm.errors import ModelNotFoundError

_FLOAT_DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_LFS_POINTER = b"version https://git-lfs"
_LENGTH_BYTES = 8
# The format's own limit.
_MAX_HEADER_BYTES = 100_000_000


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
        ModelNotFoundError: a file is missing, cut short, or only a pointer to the real one; or the
            index and its files disagree.
        UnsupportedModelError: the weights are stored in a quantised dtype.
    """
    weights = [tensor for tensor in _read_tensors(model_dir) if tensor.dtype in _FLOAT_DTYPES]
    if not weights:
        return None
    num_elements = {tensor.name: tensor.num_elements for tensor in weights}
    return WeightsSummary(num_elements, "lm_head.weight", _FLOAT_DTYPES[_main_dtype(weights)])


def read_shapes(model_dir: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor in the directory's safetensors, by name.

    Raises:
        ModelNotFoundError: see `summarise_weights`.
        UnsupportedModelError: see `summarise_weights`.
    """
    return {tensor.name: tensor.shape for tensor in _read_tensors(model_dir)}


def read_header(path: Path) -> list[TensorInfo]:
    """Read the header of one safetensors file, and check that the file is what it says.

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
    try:
        # What loading checks: that each tensor has as many bytes as it needs, and has them alone.
        with safe_open(path, framework="numpy"):
            return tensors
    except SafetensorError as error:
        raise _damaged(path, f"is no safetensors file: {error}") from error


def _read_tensors(model_dir: Path) -> list[TensorInfo]:
    """The tensors of a checkpoint as loading gives them."""
    return expanded(model_dir, _stored_tensors(model_dir))


def _stored_tensors(model_dir: Path) -> list[TensorInfo]:
    """The tensors of the files that loading reads: one, or the shards of the index; no copies."""
    single = model_dir / "model.safetensors"
    if single.is_file():
        return read_header(single)
    index = model_dir / "model.safetensors.index.json"
    if not index.is_file():
        return []
    shard_of = _read_index(index)
    names = sorted(set(shard_of.values()))
    missing = [name for name in names if not (model_dir / name).is_file()]
    if missing:
        raise _damaged(model_dir, f"lacks {len(missing)} of {len(names)} files: `{missing[0]}`")
    shards = {name: read_header(model_dir / name) for name in names}
    found: dict[str, str] = {}
    for shard, tensors in shards.items():
        for tensor in tensors:
            other = found.setdefault(tensor.name, shard)
            if other != shard:
                raise _damaged(model_dir, f"has `{tensor.name}` in `{other}` and in `{shard}`")
    absent = sorted(shard_of.items() - found.items())
    if absent:
        name, shard = absent[0]
        raise _damaged(index, f"says that `{name}` is in `{shard}`, and it is not there")
    return [tensor for tensors in shards.values() for tensor in tensors]


def _read_index(index: Path) -> dict[str, str]:
    """The shard of every tensor."""
    try:
        shard_of = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        are_names = all(name and Path(name).name == name for name in shard_of.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(index, "is no index of safetensors files") from error
    if not shard_of or not are_names:
        raise _damaged(index, "is no index of safetensors files")
    return dict(shard_of)


def _main_dtype(tensors: Iterable[TensorInfo]) -> str:
    elements_by_dtype: Counter[str] = Counter()
    for tensor in tensors:
        elements_by_dtype[tensor.dtype] += tensor.num_elements
    return elements_by_dtype.most_common(1)[0][0]


def _damaged(path: Path, what: str) -> ModelNotFoundError:
    return ModelNotFoundError(f"`{path}` {what}", hint="download the model again")
