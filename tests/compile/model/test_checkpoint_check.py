"""Checkpoints that would be found wrong only after all graphs are built, or never."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import LLAMA_CONFIG, Compiled, compile_tiny
from safetensors.torch import load_file, save_file

from neuron_llm.compile.model.checkpoint_check import check_checkpoint
from neuron_llm.compile.weights import load_weights
from neuron_llm.errors import ModelNotFoundError


@pytest.fixture
def checkpoint(llama_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Llama to break."""
    return Path(shutil.copytree(llama_model, tmp_path / "model"))


def change_config(checkpoint: Path, **changes: Any) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_weights(checkpoint: Path, **changes: torch.Tensor | None) -> None:
    path = checkpoint / "model.safetensors"
    tensors: dict[str, torch.Tensor | None] = {**load_file(path), **changes}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, path, metadata={"format": "pt"})


def refusal(checkpoint: Path) -> ModelNotFoundError:
    with pytest.raises(ModelNotFoundError) as caught:
        check_checkpoint(checkpoint)
    assert caught.value.hint is not None and "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("model", ["llama_model", "qwen3_model"])
def test_a_whole_checkpoint_passes_tied_or_not(model: str, request: pytest.FixtureRequest) -> None:
    check_checkpoint(request.getfixturevalue(model))


def test_a_stored_copy_of_a_tied_weight_passes(checkpoint: Path) -> None:
    embedding = load_file(checkpoint / "model.safetensors")["model.embed_tokens.weight"]
    change_weights(checkpoint, **{"lm_head.weight": embedding.clone()})
    check_checkpoint(checkpoint)


def test_no_weights_are_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    assert refusal(checkpoint).message == (f"`{checkpoint}` has no weights: safetensors are needed")


def test_pickled_weights_are_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    assert "only `pytorch_model.bin`, which is not read" in refusal(checkpoint).message


def test_a_weight_of_another_shape_is_named(checkpoint: Path) -> None:
    change_config(checkpoint, intermediate_size=80)
    message = refusal(checkpoint).message
    assert "do not fit its config.json: `model.layers.0.mlp." in message
    assert message.endswith("is [96, 64], not [80, 64]")


def test_a_missing_weight_is_named(checkpoint: Path) -> None:
    change_weights(checkpoint, **{"model.norm.weight": None})
    assert refusal(checkpoint).message.endswith("`model.norm.weight` missing")
    change_config(checkpoint, num_hidden_layers=3)
    assert refusal(checkpoint).message.endswith(" and 9 more missing")


def test_layers_that_the_config_does_not_count_are_not_left_out(checkpoint: Path) -> None:
    change_config(checkpoint, num_hidden_layers=1)
    assert "`model.layers.1." in refusal(checkpoint).message


def test_weights_under_other_names_are_left_to_loading(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    renamed = {name.removeprefix("model."): t for name, t in load_file(path).items()}
    save_file(renamed, path, metadata={"format": "pt"})
    check_checkpoint(checkpoint)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"model": 3}'])
def test_a_damaged_tokenizer_is_refused(text: str, checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").write_text(text)
    assert f"the tokenizer in `{checkpoint}` does not load: " in refusal(checkpoint).message


def test_a_missing_tokenizer_is_refused(checkpoint: Path) -> None:
    for path in checkpoint.glob("tokenizer*"):
        path.unlink()
    assert "does not load" in refusal(checkpoint).message


def test_a_wrong_model_is_refused_before_any_graph_is_built(
    checkpoint: Path, llama: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    (checkpoint / "tokenizer.json").write_text("{")
    other = LLAMA_CONFIG.replace("block_size: 4", "block_size: 8")
    with pytest.raises(ModelNotFoundError, match="does not load"):
        compile_tiny(checkpoint, other, tmp_path / "cache", tmp_path)
    assert not list((tmp_path / "cache").glob("graphs/*")) and not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_number_that_is_none_is_refused_with_its_tensor(
    value: float, dtype: torch.dtype, checkpoint: Path
) -> None:
    weight = torch.ones(64)
    weight[7] = value
    change_weights(checkpoint, **{"model.norm.weight": weight})
    with pytest.raises(ModelNotFoundError, match=r"`model\.norm\.weight` of .* NaN or infinity"):
        load_weights(checkpoint, dtype)


def test_a_number_too_large_for_the_dtype_is_refused(checkpoint: Path) -> None:
    change_weights(checkpoint, **{"model.norm.weight": torch.full((64,), 1e6)})
    with pytest.raises(ModelNotFoundError, match="infinity in float16") as caught:
        load_weights(checkpoint, torch.float16)
    assert caught.value.hint is not None and "`dtype`" in caught.value.hint
