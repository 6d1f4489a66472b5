"""GGUF files of every storage type become checkpoints that say what the file says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tiny_models import (
    LLAMA,
    QWEN3,
    load_reference,
    random_prompt,
    reference_tokens,
    save_model,
)
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from neuron_llm.compile.model.checkpoint import convert_gguf, read_architecture
from neuron_llm.compile.model.checkpoint_check import check_checkpoint
from neuron_llm.compile.model.model_spec import read_model_spec

gguf = pytest.importorskip("gguf")

from gguf_factory import (  # noqa: E402  only where the package is
    QUANTISED,
    Array,
    type_everything,
    write_gguf_model,
)

# An older `gguf` package lacks the newest type.
STORAGE_TYPES = [
    name
    for name in (*QUANTISED, "MXFP4", "F32", "F16", "BF16")
    if name in gguf.GGMLQuantizationType.__members__
]
# Rows of 256 numbers, the longest block; the head width and the counts differ from each other.
WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {**LLAMA, **WIDE, "num_hidden_layers": 1},
    "qwen2": {**LLAMA, **WIDE, "model_type": "qwen2", "num_hidden_layers": 1},
    "qwen3": {**QWEN3, **WIDE, "head_dim": 128, "num_key_value_heads": 2, "num_hidden_layers": 1},
}
SMALL_MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama_with_biases": {**LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 24},
    "llama_theta": {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    "qwen2": {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": False},
    "qwen3": QWEN3,
    "gemma2": {
        **LLAMA,
        "model_type": "gemma2",
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "pad_token_id": None,
        "attn_logit_softcapping": 20.0,
        "final_logit_softcapping": 10.0,
    },
    "gemma3": {
        **LLAMA,
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "pad_token_id": None,
    },
    "phi3": {
        **LLAMA,
        "model_type": "phi3",
        "tie_word_embeddings": False,
        "sliding_window": 8,
        "pad_token_id": None,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 2e4,
            "partial_rotary_factor": 0.5,
        },
    },
}


@pytest.fixture(scope="session")
def hf_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Path]:
    """Small random models by their settings, each written once."""
    written: dict[str, Path] = {}

    def model(settings: dict[str, Any]) -> Path:
        key = repr(settings)
        if key not in written:
            written[key] = save_model(tmp_path_factory.mktemp("hf"), settings)
        return written[key]

    return model


def q4_k_m(name: str, array: Array) -> str:
    """The mix of types that llama.cpp calls so: the matrices that matter most in six bits."""
    if array.ndim == 1:
        return "F32"
    is_wide = name in ("output.weight", "token_embd.weight") or ".attn_v." in name
    return "Q6_K" if is_wide or ".ffn_down." in name else "Q4_K"


def assert_same_weights(checkpoint: Path, weights: dict[str, torch.Tensor]) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    assert stored.keys() == weights.keys()
    for name, weight in weights.items():
        assert torch.equal(stored[name].float(), weight.float()), name


@pytest.mark.parametrize("type_name", STORAGE_TYPES)
def test_every_storage_type_expands_to_its_numbers(
    type_name: str, hf_model: Callable[[dict[str, Any]], Path], tmp_path: Path
) -> None:
    model_dir = hf_model(MODELS["llama"])
    file = write_gguf_model(tmp_path / "m.gguf", model_dir, type_everything(type_name))
    convert_gguf(file.path, tmp_path / "checkpoint")
    assert_same_weights(tmp_path / "checkpoint", file.weights)
    with safe_open(tmp_path / "checkpoint" / "model.safetensors", "pt") as stored:
        dtype = stored.get_slice("model.layers.0.mlp.up_proj.weight").get_dtype()
    assert dtype == (type_name if type_name in ("F16", "BF16") else "F32")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("choose_type", [type_everything("Q8_0"), q4_k_m], ids=["q8_0", "q4_k_m"])
def test_generation_is_that_of_the_expanded_weights(
    name: str,
    choose_type: Callable[[str, Array], str],
    hf_model: Callable[[dict[str, Any]], Path],
    tmp_path: Path,
) -> None:
    model_dir = hf_model(MODELS[name])
    file = write_gguf_model(tmp_path / "m.gguf", model_dir, choose_type)
    convert_gguf(file.path, tmp_path / "checkpoint")
    assert_same_weights(tmp_path / "checkpoint", file.weights)
    expected = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(model_dir), attn_implementation="eager", dtype=torch.float32
    ).eval()
    faults = expected.load_state_dict(file.weights, strict=False)
    assert not faults.unexpected_keys and {*faults.missing_keys} <= {"lm_head.weight"}
    model = load_reference(tmp_path / "checkpoint")
    outputs = set()
    for seed in range(3):
        prompt = random_prompt(5 + seed, seed=seed)
        tokens = reference_tokens(model, prompt, 12)
        assert tokens == reference_tokens(expected, prompt, 12)
        outputs.add(tuple(tokens))
    assert len(outputs) > 1, "a model that says one thing would agree with any fault"


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_a_file_computes_what_the_model_did_that_it_was_made_of(
    name: str, hf_model: Callable[[dict[str, Any]], Path], tmp_path: Path
) -> None:
    model_dir = hf_model(SMALL_MODELS[name])
    file = write_gguf_model(tmp_path / "m.gguf", model_dir)
    convert_gguf(file.path, tmp_path / "checkpoint")
    check_checkpoint(tmp_path / "checkpoint")
    assert_same_weights(tmp_path / "checkpoint", file.weights)
    input_ids = torch.tensor([random_prompt(24, seed=1)])
    with torch.no_grad():
        expected = load_reference(model_dir)(input_ids).logits
        logits = load_reference(tmp_path / "checkpoint")(input_ids).logits
    # Adding one to Gemma's norms and taking it off again rounds them.
    tolerance = 1e-4 if name.startswith("gemma") else 0.0
    torch.testing.assert_close(logits, expected, rtol=tolerance, atol=tolerance)
    assert expected.std() > 0.1


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_plan_graphs_and_checkpoint_agree_on_the_architecture(
    name: str, hf_model: Callable[[dict[str, Any]], Path], tmp_path: Path
) -> None:
    file = write_gguf_model(tmp_path / "m.gguf", hf_model(SMALL_MODELS[name]))
    convert_gguf(file.path, tmp_path / "checkpoint")
    architecture = read_architecture(file.path)
    assert architecture == read_architecture(tmp_path / "checkpoint")
    assert read_model_spec(file.path) == read_model_spec(tmp_path / "checkpoint")


def test_a_file_shares_its_graphs_with_the_model_it_was_made_of(
    llama_model: Path, tmp_path: Path
) -> None:
    file = write_gguf_model(tmp_path / "m.gguf", llama_model, type_everything("Q8_0"))
    assert read_architecture(file.path) == read_architecture(llama_model)


def test_text_becomes_the_tokens_it_was_before(llama_model: Path, tmp_path: Path) -> None:
    file = write_gguf_model(tmp_path / "m.gguf", llama_model)
    convert_gguf(file.path, tmp_path / "checkpoint")
    before, after = (
        AutoTokenizer.from_pretrained(p) for p in (llama_model, tmp_path / "checkpoint")
    )
    for text in ("hello world", " hello  world\n", "naïve 🙂 123", "<s>hello</s>"):
        ids = after.encode(text, add_special_tokens=False)
        assert ids == before.encode(text, add_special_tokens=False)
        assert after.decode(ids) == before.decode(ids)
    assert (after.bos_token, after.eos_token) == (before.bos_token, before.eos_token)
    chat = [{"role": "user", "content": "hello"}]
    assert after.apply_chat_template(chat, tokenize=False) == "hello"


def test_files_beside_it_change_nothing(llama_model: Path, tmp_path: Path) -> None:
    alone = write_gguf_model(tmp_path / "m.gguf", llama_model)
    convert_gguf(alone.path, tmp_path / "checkpoint")
    crowded = Path(shutil.copytree(llama_model, tmp_path / "hf"))
    (crowded / "tokenizer.json").write_text("{")
    (crowded / "config.json").write_text('{"model_type": "gpt2"}')
    shutil.copyfile(alone.path, crowded / "a b.gguf")
    convert_gguf(crowded / "a b.gguf", tmp_path / "again")
    for path in (tmp_path / "checkpoint").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_every_token_that_ends_a_reply_is_kept(llama_model: Path, tmp_path: Path) -> None:
    ends = {"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 7}
    file = write_gguf_model(tmp_path / "m.gguf", llama_model, metadata=ends)
    convert_gguf(file.path, tmp_path / "checkpoint")
    assert AutoConfig.from_pretrained(tmp_path / "checkpoint").eos_token_id == [7, 9, 263]
    assert read_model_spec(file.path).eos_token_ids == (7, 9, 263)


@pytest.mark.parametrize(
    ("type_name", "planned", "stored"),
    [
        ("F32", "float32", torch.float32),
        ("F16", "float16", torch.float16),
        ("BF16", "bfloat16", torch.bfloat16),
        ("Q8_0", "bfloat16", torch.float32),
    ],
)
def test_the_dtype_is_that_of_the_matrices(
    type_name: str, planned: str, stored: torch.dtype, llama_model: Path, tmp_path: Path
) -> None:
    file = write_gguf_model(tmp_path / "m.gguf", llama_model, type_everything(type_name))
    convert_gguf(file.path, tmp_path / "checkpoint")
    assert read_model_spec(file.path).dtype == planned
    assert AutoConfig.from_pretrained(tmp_path / "checkpoint").dtype == stored
