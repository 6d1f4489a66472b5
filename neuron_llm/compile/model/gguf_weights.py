"""The tensors of a GGUF file written as safetensors, a few rows at a time.

Rows are whole in both formats, so a few of them are read, expanded and written, and no tensor is
ever in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neuron_llm.compile.model.gguf_header import GgufHeader, GgufTensor
from neuron_llm.compile.model.gguf_rope import DIVISORS_TENSOR
from neuron_llm.compile.model.gguf_spec import FLOAT_DTYPES
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError
from neuron_llm.quantities import DTYPE_BYTES

# Numbers that are expanded at a time; some storage types take several times their size meanwhile.
_CHUNK_ELEMENTS = 1 << 20
# What is stored as it is, with the size of a number; everything else is expanded to float32.
_PLAIN_BYTES = {name: DTYPE_BYTES[dtype] for name, dtype in FLOAT_DTYPES.items()}
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class ConvertedTensor:
    """One tensor of the file on its way into the checkpoint.

    Attributes:
        name: in the checkpoint.
        source: in the file.
        num_rotated_heads: heads whose rows the file has in another order, or None.
        shift: what the file added to every number.
    """

    name: str
    source: GgufTensor
    num_rotated_heads: int | None
    shift: float

    @property
    def is_copied(self) -> bool:
        """Whether its numbers are stored in the checkpoint as they are in the file."""
        return self.source.type_name in _PLAIN_BYTES and not self.shift

    @property
    def dtype(self) -> str:
        """Its dtype in the checkpoint, as safetensors names it."""
        return self.source.type_name if self.is_copied else "F32"

    @property
    def num_bytes(self) -> int:
        """Its size in the checkpoint."""
        return self.source.num_elements * _PLAIN_BYTES[self.dtype]


def plan_conversion(header: GgufHeader, model: Any) -> list[ConvertedTensor]:
    """Return where every parameter of a model is in the file.

    Args:
        header: of the file.
        model: of the file's configuration, on any device.

    Raises:
        ModelNotFoundError: a parameter is not in the file, or in another shape.
        UnsupportedModelError: a tensor of the file has no place in the model.
    """
    architecture = header.metadata["general.architecture"]
    names = _tensor_names(architecture, model)
    plan = []
    for name, parameter in model.named_parameters():
        source = header.tensors.get(names[name])
        if source is None:
            raise _unfit(header, f"`{names[name]}` is missing")
        if source.shape != tuple(parameter.shape):
            shapes = f"{list(source.shape)}, not {list(parameter.shape)}"
            raise _unfit(header, f"`{source.name}` is {shapes}")
        heads = _num_rotated_heads(architecture, name, model.config)
        # The format's programs multiply by a norm where transformers multiplies by it plus one.
        is_shifted = architecture.startswith("gemma") and name.endswith("norm.weight")
        plan.append(ConvertedTensor(name, source, heads, 1.0 if is_shifted else 0.0))
    unused = header.tensors.keys() - {tensor.source.name for tensor in plan} - {DIVISORS_TENSOR}
    if unused:
        raise UnsupportedModelError(
            f"`{min(unused)}` in `{header.path}` has no place in a `{type(model).__name__}`",
            hint="give the model as a Hugging Face directory",
        )
    return plan


def write_safetensors(header: GgufHeader, plan: Iterable[ConvertedTensor], path: Path) -> None:
    """Write the planned tensors of a file, each with the numbers that expanding gives.

    Raises:
        OSError: the file cannot be written.
    """
    # Wide numbers first, so that each begins at a multiple of its width.
    tensors = sorted(plan, key=lambda tensor: (-_PLAIN_BYTES[tensor.dtype], tensor.source.offset))
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.num_bytes
        shape = list(tensor.source.shape)
        entries[tensor.name] = {
            "dtype": tensor.dtype, "shape": shape, "data_offsets": [start, end]
        }  # fmt: skip
    content = json.dumps(entries).encode()
    content += b" " * (-len(content) % _LENGTH_BYTES)
    with path.open("wb") as file:
        file.write(len(content).to_bytes(_LENGTH_BYTES, "little") + content)
        for tensor in tensors:
            for chunk in _chunks(header, tensor):
                file.write(np.ascontiguousarray(chunk).data)


def _chunks(header: GgufHeader, tensor: ConvertedTensor) -> Iterator[npt.NDArray[Any]]:
    """The numbers of a tensor in the checkpoint's order, whole heads or rows at a time."""
    source = tensor.source
    head_rows = source.shape[0] // tensor.num_rotated_heads if tensor.num_rotated_heads else None
    unit = head_rows if head_rows and len(source.shape) > 1 else 1
    num_units = _CHUNK_ELEMENTS * source.num_rows // source.num_elements // unit
    step = max(1, num_units) * unit
    for start in range(0, source.num_rows, step):
        stored = header.read(source, start, min(step, source.num_rows - start))
        if len(source.shape) == 1 and source.type_name in _PLAIN_BYTES:
            # The numbers of a vector take the part of rows.
            stored = stored.reshape(-1, _PLAIN_BYTES[source.type_name])
        if head_rows:
            stored = _part_halves(stored, head_rows)
        yield stored if tensor.is_copied else _expand(stored, tensor)


def _expand(stored: npt.NDArray[np.uint8], tensor: ConvertedTensor) -> npt.NDArray[np.float32]:
    from gguf import GGMLQuantizationType, dequantize

    tensor_type = GGMLQuantizationType[tensor.source.type_name]
    values: npt.NDArray[np.float32] = dequantize(stored, tensor_type)
    return values - np.float32(tensor.shift) if tensor.shift else values


def _part_halves(rows: npt.NDArray[np.uint8], head_rows: int) -> npt.NDArray[np.uint8]:
    """Order the rows of heads as the checkpoint does.

    The file puts the two halves of a head side by side, row by row: of a head with the rows
    `[a0, a1, b0, b1]` it has `[a0, b0, a1, b1]`.
    """
    pairs = rows.reshape(-1, head_rows // 2, 2, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _num_rotated_heads(architecture: str, name: str, config: Any) -> int | None:
    if architecture == "llama":
        if ".q_proj." in name:
            return int(config.num_attention_heads)
        if ".k_proj." in name:
            return int(config.num_key_value_heads)
    return None


def _tensor_names(architecture: str, model: Any) -> Mapping[str, str]:
    """The file's name of every parameter."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    (arch,) = (arch for arch, name in MODEL_ARCH_NAMES.items() if name == architecture)
    tensor_names = get_tensor_name_map(arch, model.config.num_hidden_layers)
    names = {}
    for name, _ in model.named_parameters():
        module, _, kind = name.rpartition(".")
        # One that the architecture has no name for cannot be in the file.
        names[name] = f"{tensor_names.get_name(module) or module}.{kind}"
    return names


def _unfit(header: GgufHeader, what: str) -> ModelNotFoundError:
    return ModelNotFoundError(
        f"the tensors of `{header.path}` do not fit its metadata: {what}",
        hint="download the file again",
    )
