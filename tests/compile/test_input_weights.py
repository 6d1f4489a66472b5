"""Weights reach the artifact as they were stored: in shards, in any dtype, in several at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from config_factory import write_config
from safetensors.torch import load_file, save_file
from tiny_models import QWEN3, load_reference, random_prompt, reference_tokens, save_model
from transformers import AutoModelForCausalLM

from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.model.checkpoint_check import check_checkpoint
from neuron_llm.compile.model.model_spec import read_model_spec
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.compile.weights import load_weights
from neuron_llm.errors import ConfigError, ModelNotFoundError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture
def checkpoint(qwen3_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny Qwen3, whose two ends are not tied."""
    return Path(shutil.copytree(qwen3_model, tmp_path / "model"))


def store(checkpoint: Path, tensors: dict[str, torch.Tensor], **config: Any) -> None:
    """Replace the weights; a change of None removes a key of the config."""
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    path = checkpoint / "config.json"
    content = {**json.loads(path.read_text()), **config}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def shard(checkpoint: Path, size: str = "60KB") -> list[Path]:
    """Store the weights in shards instead; return them."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    model.save_pretrained(checkpoint, max_shard_size=size)
    shards = sorted(checkpoint.glob("model-*.safetensors"))
    assert len(shards) > 2 and not (checkpoint / "model.safetensors").exists()
    return shards


@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize("wanted", DTYPES)
def test_every_dtype_becomes_every_other(stored: str, wanted: str, checkpoint: Path) -> None:
    tensors = {
        name: tensor.to(DTYPES[stored])
        for name, tensor in load_file(checkpoint / "model.safetensors").items()
    }
    store(checkpoint, tensors, dtype=stored)
    check_checkpoint(checkpoint)
    weights = load_weights(checkpoint, DTYPES[wanted])
    for name, tensor in tensors.items():
        assert weights[name].dtype == DTYPES[wanted]
        assert torch.equal(weights[name], tensor.to(DTYPES[wanted])), name


@pytest.mark.parametrize("wanted", DTYPES)
def test_tensors_of_several_dtypes_become_one(wanted: str, checkpoint: Path) -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    tensors = {
        name: tensor.to(dtypes[index % 4])
        for index, (name, tensor) in enumerate(
            sorted(load_file(checkpoint / "model.safetensors").items())
        )
    }
    store(checkpoint, tensors)
    check_checkpoint(checkpoint)
    weights = load_weights(checkpoint, DTYPES[wanted])
    for name, tensor in tensors.items():
        assert torch.equal(weights[name], tensor.to(DTYPES[wanted])), name


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_a_number_too_large_for_float16_is_refused_by_its_tensor(
    stored: str, checkpoint: Path
) -> None:
    tensors = {
        name: tensor.to(DTYPES[stored])
        for name, tensor in load_file(checkpoint / "model.safetensors").items()
    }
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = -70000.0
    store(checkpoint, tensors, dtype=stored)
    with pytest.raises(ModelNotFoundError) as caught:
        load_weights(checkpoint, torch.float16)
    assert "`model.layers.1.mlp.up_proj.weight`" in caught.value.message
    assert "infinity in float16" in caught.value.message
    assert caught.value.hint is not None and "`dtype`" in caught.value.hint
    for dtype in (torch.float32, torch.bfloat16):
        load_weights(checkpoint, dtype)


def test_the_largest_of_float16_is_not_refused(checkpoint: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["model.norm.weight"][0] = 65504.0
    store(checkpoint, tensors)
    weights = load_weights(checkpoint, torch.float16)
    assert weights["model.norm.weight"][0] == 65504.0


@pytest.mark.parametrize(
    ("stored", "named", "planned"),
    [
        ("bfloat16", None, "bfloat16"),
        ("float16", None, "float16"),
        ("float32", "bfloat16", "bfloat16"),
        ("bfloat16", "float32", "float32"),
    ],
)
def test_auto_is_the_dtype_of_the_config_or_of_most_numbers(
    stored: str, named: str | None, planned: str, checkpoint: Path, tmp_path: Path
) -> None:
    tensors = {
        name: tensor.to(DTYPES[stored] if tensor.dim() > 1 else torch.float32)
        for name, tensor in load_file(checkpoint / "model.safetensors").items()
    }
    store(checkpoint, tensors, dtype=named, torch_dtype=None)
    loaded = load_config(write_config(tmp_path, "dtype: auto\nmax_model_len: 64\n"))
    assert loaded.model_spec is not None
    assert plan_compile(loaded, loaded.model_spec).dtype == planned


def test_auto_of_float64_is_refused_with_the_choices(checkpoint: Path, tmp_path: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    store(checkpoint, {n: t.double() for n, t in tensors.items()}, dtype=None)
    with pytest.raises(ConfigError) as caught:
        load_config(write_config(tmp_path, "dtype: auto\nmax_model_len: 64\n"))
    assert "`float64`, which graphs do not compute in" in caught.value.faults[0]
    weights = load_weights(checkpoint, torch.float32)
    assert all(torch.equal(weights[name], tensor) for name, tensor in tensors.items())


def test_shards_give_the_weights_of_one_file(checkpoint: Path, qwen3_model: Path) -> None:
    expected = load_weights(checkpoint, torch.bfloat16)
    spec = read_model_spec(checkpoint)
    shard(checkpoint)
    check_checkpoint(checkpoint)
    assert read_model_spec(checkpoint) == spec and spec.has_exact_num_parameters
    weights = load_weights(checkpoint, torch.bfloat16)
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    prompt = random_prompt(6, seed=0)
    tokens = [
        reference_tokens(load_reference(directory), prompt, 8)
        for directory in (checkpoint, qwen3_model)
    ]
    assert tokens[0] == tokens[1]


def test_tied_shards_give_the_weights_of_one_file(tmp_path: Path) -> None:
    tied = save_model(tmp_path / "tied", {**QWEN3, "tie_word_embeddings": True})
    expected = load_weights(tied, torch.float32)
    shard(tied)
    weights = load_weights(tied, torch.float32)
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_missing_shard_is_named_before_any_work(checkpoint: Path) -> None:
    shards = shard(checkpoint)
    shards[1].unlink()
    for check in (read_model_spec, check_checkpoint):
        with pytest.raises(ModelNotFoundError) as caught:
            check(checkpoint)
        assert caught.value.message == (
            f"`{checkpoint}` lacks 1 of {len(shards)} files: `{shards[1].name}`"
        )


def test_a_shard_that_lacks_a_weight_of_the_index_is_named_before_any_work(
    checkpoint: Path,
) -> None:
    path = shard(checkpoint)[1]
    name, *others = sorted(load_file(path))
    tensors = load_file(path)
    save_file({other: tensors[other] for other in others}, path, metadata={"format": "pt"})
    for check in (read_model_spec, check_checkpoint):
        with pytest.raises(ModelNotFoundError, match=f"`{name}` is in `{path.name}`"):
            check(checkpoint)


def test_shards_without_an_index_are_named(checkpoint: Path) -> None:
    first = shard(checkpoint)[0]
    (checkpoint / "model.safetensors.index.json").unlink()
    with pytest.raises(ModelNotFoundError) as caught:
        check_checkpoint(checkpoint)
    assert f"has `{first.name}`, and neither `model.safetensors` nor" in caught.value.message
    assert caught.value.hint is not None
    assert "`model.safetensors.index.json`" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth"]
)
def test_pickles_alone_are_refused_with_the_way_out(checkpoint: Path, name: str) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / name)
    (checkpoint / "training_args.bin").write_bytes(b"")
    with pytest.raises(ModelNotFoundError) as caught:
        check_checkpoint(checkpoint)
    assert f"has only `{name}`, which is not read" in caught.value.message
    assert caught.value.hint is not None and "save_pretrained" in caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 0},
        {"hidden_size": "wide"},
        {"rope_parameters": {"rope_type": "llama3"}},
        {"model_type": "nobody"},
    ],
)
def test_a_config_that_describes_no_model_is_refused(
    changes: dict[str, Any], checkpoint: Path
) -> None:
    store(checkpoint, load_file(checkpoint / "model.safetensors"), **changes)
    with pytest.raises(ModelNotFoundError, match="describes no model: ") as caught:
        check_checkpoint(checkpoint)
    assert "\n" not in caught.value.message
