"""Small quantised checkpoints, and the numbers that they stand for, worked out one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from families import FAMILIES
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

# The sixteen numbers of four bits: a sign, two bits of exponent, one of fraction.
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def mxfp4_checkpoint(directory: Path) -> dict[str, torch.Tensor]:
    """Write a gpt-oss whose experts are quantised; return the weights that it stands for."""
    config, weights = _random_model("gpt-oss")
    stored, meant = {}, dict(weights)
    for name, weight in weights.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[name] = weight
            continue
        num_experts, num_inputs, num_outputs = weight.shape
        shape = (num_experts, num_outputs, num_inputs // 32)
        blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        scales = torch.randint(120, 126, shape, dtype=torch.uint8)
        stored[f"{name}_blocks"], stored[f"{name}_scales"] = blocks, scales
        numbers = torch.empty(num_experts, num_outputs, num_inputs)
        for index in range(numbers.numel()):
            expert, rest = divmod(index, num_outputs * num_inputs)
            output, column = divmod(rest, num_inputs)
            block, place = divmod(column, 32)
            byte = int(blocks[expert, output, block, place // 2])
            nibble = byte >> 4 if place % 2 else byte & 15
            sign = -1.0 if nibble & 8 else 1.0
            exponent = int(scales[expert, output, block]) - 127
            numbers[expert, output, column] = sign * _FP4[nibble & 7] * 2.0**exponent
        meant[name] = numbers.transpose(1, 2).to(torch.bfloat16)
    _write(directory, config, stored, {"quant_method": "mxfp4"})
    return meant


def fp8_checkpoint(directory: Path, family: str, size: int = 32) -> dict[str, torch.Tensor]:
    """Write a model whose layers are quantised in blocks of `size` by `size`; return its weights.

    Blocks at the ends of a weight may be smaller.
    """
    config, weights = _random_model(family)
    stored, meant = {}, dict(weights)
    for name, weight in weights.items():
        if "_proj" not in name or weight.dim() != 2:
            stored[name] = weight
            continue
        num_rows, num_columns = weight.shape
        scales = torch.rand(-(-num_rows // size), -(-num_columns // size)) * 0.01 + 0.001
        wide = scales.repeat_interleave(size, 0).repeat_interleave(size, 1)
        wide = wide[:num_rows, :num_columns]
        stored[name] = (weight.float() / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        stored[f"{name}_scale_inv"] = scales
        meant[name] = (stored[name].float() * wide).to(torch.bfloat16)
    quantization = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [size, size],
        "modules_to_not_convert": ["lm_head"],
    }
    _write(directory, config, stored, quantization)
    return meant


def _random_model(family: str) -> tuple[Any, dict[str, torch.Tensor]]:
    settings = dict(FAMILIES[family])
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    config.architectures = [type(model).__name__]
    return config, {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _write(
    directory: Path, config: Any, stored: dict[str, torch.Tensor], quantization: dict[str, Any]
) -> None:
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})
    settings = {**config.to_dict(), "dtype": "bfloat16", "quantization_config": quantization}
    (directory / "config.json").write_text(json.dumps(settings))
