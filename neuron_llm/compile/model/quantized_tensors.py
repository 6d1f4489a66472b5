"""What the quantised tensors of a checkpoint stand for, by their headers alone.

Two layouts are expanded when a checkpoint is loaded. In mxfp4, `W_blocks`
`[num_experts, num_outputs, num_inputs / 32, 16]` holds two numbers of four bits in a byte, and
`W_scales` an exponent for each block of 32; they stand for `W` `[num_experts, num_inputs,
num_outputs]`. In fp8, `W` holds numbers of eight bits, and `W_scale_inv` a factor for each block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.errors import UnsupportedModelError

_QUANTIZED_DTYPES = ("F8", "F6_", "F4", "U8", "I8")
_FP8 = "F8_E4M3"
_BLOCKS, _SCALES, _FP8_SCALES = "_blocks", "_scales", "_scale_inv"
_PACKED_PER_BYTE = 2
# Of the activations at run time, which are not quantised here.
_UNUSED = (".activation_scale", ".input_scale")


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


def expanded(model_dir: Path, tensors: Sequence[TensorInfo]) -> list[TensorInfo]:
    """Return the tensors of a checkpoint as loading gives them, quantised ones in bfloat16.

    Raises:
        UnsupportedModelError: a tensor has a quantised dtype, and no scales of a known layout.
    """
    dtypes = {tensor.name: tensor.dtype for tensor in tensors}
    _require_even_blocks(model_dir, tensors)
    result = []
    for tensor in tensors:
        if _is_mxfp4_half(tensor, _BLOCKS, _SCALES, dtypes) and len(tensor.shape) >= 3:
            *leading, num_outputs, num_blocks, num_bytes = tensor.shape
            shape = (*leading, num_blocks * num_bytes * _PACKED_PER_BYTE, num_outputs)
            result.append(TensorInfo(tensor.name.removesuffix(_BLOCKS), "BF16", shape))
        elif tensor.dtype == _FP8 and tensor.name + _FP8_SCALES in dtypes:
            result.append(TensorInfo(tensor.name, "BF16", tensor.shape))
        elif _is_mxfp4_half(tensor, _SCALES, _BLOCKS, dtypes) or tensor.name.endswith(
            (_FP8_SCALES, *_UNUSED)
        ):
            continue
        elif tensor.dtype.startswith(_QUANTIZED_DTYPES):
            raise UnsupportedModelError(
                f"`{tensor.name}` in `{model_dir}` is stored as {tensor.dtype}, a quantised dtype, "
                "without the other half of mxfp4 or the scales of fp8",
                hint="give the unquantised checkpoint of the same model, or a `.gguf` file",
            )
        else:
            result.append(tensor)
    return result


def _require_even_blocks(model_dir: Path, tensors: Sequence[TensorInfo]) -> None:
    """Refuse an fp8 weight whose last block is smaller than the others.

    Loading takes each dimension apart into as many equal parts as there are scales, and would
    multiply by the scales of other blocks.
    """
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    block = _fp8_block(model_dir)
    for weight in tensors:
        scales = shapes.get(weight.name + _FP8_SCALES, ())
        if weight.dtype != _FP8 or block is None or len(scales) < len(block):
            continue
        ends = zip(weight.shape[-2:], scales[-2:], block, strict=True)
        if any(num_scales > 1 and num_scales * step != size for size, num_scales, step in ends):
            raise UnsupportedModelError(
                f"`{weight.name}` in `{model_dir}` is {list(weight.shape)}, which fp8 blocks of "
                f"{block[0]} by {block[1]} do not fill",
                hint="give the unquantised checkpoint of the same model, or a `.gguf` file",
            )


def _fp8_block(model_dir: Path) -> tuple[int, int] | None:
    """Return the rows and columns that have one scale; None if the configuration says nothing."""
    try:
        config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
        rows, columns = config["quantization_config"]["weight_block_size"]
        return int(rows), int(columns)
    # Whoever reads the whole configuration tells what is wrong with it.
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_mxfp4_half(tensor: TensorInfo, own: str, other: str, dtypes: Mapping[str, str]) -> bool:
    """Whether a tensor is the half of an mxfp4 weight that `own` ends, and the other is there."""
    partner = tensor.name.removesuffix(own) + other
    return tensor.name.endswith(own) and (tensor.dtype, dtypes.get(partner)) == ("U8", "U8")
