"""Quantised checkpoints are expanded to the numbers that they stand for, or refused by name."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from quantized_checkpoint import fp8_checkpoint, mxfp4_checkpoint
from safetensors.torch import load_file, save_file

from neuron_llm.compile.model.model_support import check_supported
from neuron_llm.compile.model.safetensors_header import read_shapes, summarise_weights
from neuron_llm.compile.model.transformers_model import load_model
from neuron_llm.compile.weights import load_weights
from neuron_llm.errors import UnsupportedModelError


def assert_same(found: Mapping[str, torch.Tensor], meant: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in meant.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def test_mxfp4_experts_are_the_numbers_that_their_bits_stand_for(tmp_path: Path) -> None:
    meant = mxfp4_checkpoint(tmp_path)
    check_supported(json.loads((tmp_path / "config.json").read_text()))
    assert_same(load_weights(tmp_path, torch.bfloat16), meant)


@pytest.mark.parametrize("family", ["llama"])
def test_fp8_weights_are_multiplied_by_the_scale_of_their_block(
    family: str, tmp_path: Path
) -> None:
    meant = fp8_checkpoint(tmp_path, family)
    check_supported(json.loads((tmp_path / "config.json").read_text()))
    assert_same(load_weights(tmp_path, torch.bfloat16), meant)


def test_one_fp8_block_may_be_larger_than_the_weight(tmp_path: Path) -> None:
    meant = fp8_checkpoint(tmp_path, "llama", size=128)
    assert read_shapes(tmp_path).keys() == meant.keys()
    assert_same(load_weights(tmp_path, torch.bfloat16), meant)


def test_fp8_blocks_that_do_not_fill_a_weight_are_refused_by_its_name(tmp_path: Path) -> None:
    fp8_checkpoint(tmp_path, "llama", size=64)
    name = "model.layers.0.mlp.(down|gate|up)_proj.weight"
    with pytest.raises(UnsupportedModelError, match=f"{name}.* fp8 blocks of 64 by 64 do not fill"):
        read_shapes(tmp_path)


def test_a_dequantised_model_computes_with_the_weights_that_were_meant(tmp_path: Path) -> None:
    meant = fp8_checkpoint(tmp_path, "llama")
    model, loading = load_model(tmp_path, torch.float32)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    plain, _ = load_model(tmp_path, torch.float32)
    plain.load_state_dict({name: tensor.float() for name, tensor in meant.items()})
    tokens = torch.tensor([[3, 7, 11, 200]])
    with torch.no_grad():
        logits, expected = model(tokens).logits, plain(tokens).logits
    # In float32 the products are not rounded to bfloat16, as those meant are.
    torch.testing.assert_close(logits, expected, rtol=0, atol=0.02)


def remove(directory: Path, name: str) -> None:
    path = directory / "model.safetensors"
    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path, metadata={"format": "pt"})


EXPERTS = "model.layers.1.mlp.experts.down_proj"


@pytest.mark.parametrize("part", ["blocks", "scales"])
def test_half_of_an_mxfp4_weight_is_refused_by_its_name(part: str, tmp_path: Path) -> None:
    mxfp4_checkpoint(tmp_path)
    remove(tmp_path, f"{EXPERTS}_{part}")
    with pytest.raises(UnsupportedModelError, match=f"{EXPERTS}_.* U8, .* without the other half"):
        read_shapes(tmp_path)


def test_an_fp8_weight_without_its_scales_is_refused_by_its_name(tmp_path: Path) -> None:
    fp8_checkpoint(tmp_path, "llama")
    name = "model.layers.0.mlp.up_proj.weight"
    remove(tmp_path, f"{name}_scale_inv")
    with pytest.raises(UnsupportedModelError, match=f"{name}.* F8_E4M3, .* or the scales"):
        read_shapes(tmp_path)


def test_headers_say_what_loading_gives(tmp_path: Path) -> None:
    meant = mxfp4_checkpoint(tmp_path)
    assert read_shapes(tmp_path) == {name: tuple(t.shape) for name, t in meant.items()}
    summary = summarise_weights(tmp_path)
    assert summary is not None and summary.dtype == "bfloat16"
    assert summary.num_elements == {name: t.numel() for name, t in meant.items()}


def test_fp8_without_the_package_that_expands_it_is_refused_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fp8_checkpoint(tmp_path, "llama")
    config = json.loads((tmp_path / "config.json").read_text())
    find_spec: Any = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "accelerate" else find_spec(name)
    )
    with pytest.raises(UnsupportedModelError, match="the package that expands it") as caught:
        check_supported(config)
    assert "neuron-llm[fp8]" in str(caught.value.hint)
