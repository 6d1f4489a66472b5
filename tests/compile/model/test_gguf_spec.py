import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuron_llm.compile.model.gguf_header import read_gguf_header
from neuron_llm.compile.model.gguf_spec import gguf_config
from neuron_llm.compile.model.model_spec import ModelSpec, read_model_spec
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

gguf = pytest.importorskip("gguf")


def write_gguf(
    path: Path,
    architecture: str = "llama",
    *,
    output: bool = False,
    dtype: type = np.float32,
    values: Mapping[str, Any] | None = None,
) -> Path:
    """Write a file of two layers; values are under their keys without the architecture."""
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {
        "block_count": 2,
        "context_length": 512,
        "embedding_length": 64,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
    }
    for key, value in {**sizes, **(values or {})}.items():
        name = key if key.startswith("split.") else f"{architecture}.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_uint32(name, value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"t{index}" for index in range(32)])
    writer.add_eos_token_id(2)
    writer.add_tensor("token_embd.weight", np.zeros((32, 64), dtype))
    writer.add_tensor("output_norm.weight", np.zeros(64, np.float32))
    if output:
        writer.add_tensor("output.weight", np.zeros((32, 64), dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_reads_the_metadata_of_a_llama(tmp_path: Path) -> None:
    assert read_model_spec(write_gguf(tmp_path / "m.gguf")) == ModelSpec(
        model_type="llama",
        architectures=("LlamaForCausalLM",),
        num_layers=2,
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=32,
        intermediate_size=128,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        dtype="float32",
        sliding_window=None,
        eos_token_ids=(2,),
        num_parameters=32 * 64 + 64,
        has_exact_num_parameters=True,
    )


def test_output_projection_of_its_own_is_not_tied(tmp_path: Path) -> None:
    spec = read_model_spec(write_gguf(tmp_path / "m.gguf", output=True, dtype=np.float16))
    assert not spec.tie_word_embeddings
    assert spec.num_parameters == 2 * 32 * 64 + 64
    assert spec.dtype == "float16"


def test_the_vocabulary_is_as_large_as_the_embedding(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", values={"vocab_size": 30})
    assert read_model_spec(path).vocab_size == 32


def test_heads_of_their_own_width_are_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", values={"attention.key_length": 24})
    assert read_model_spec(path).head_dim == 24


@pytest.mark.parametrize(
    ("architecture", "num_layers", "scalar"),
    [("gemma2", 26, 32), ("gemma2", 46, 16), ("gemma3", 26, 32), ("gemma3", 62, 16)],
)
def test_the_largest_gemma_scales_its_scores_by_its_width(
    architecture: str, num_layers: int, scalar: int, tmp_path: Path
) -> None:
    values = {"block_count": num_layers, "attention.key_length": 32}
    path = write_gguf(tmp_path / "m.gguf", architecture, values=values)
    assert gguf_config(read_gguf_header(path))["query_pre_attn_scalar"] == scalar


def test_a_gemma_without_a_window_sees_everything_in_every_layer(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "gemma3")
    assert gguf_config(read_gguf_header(path))["layer_types"] == ["full_attention"] * 2
    windowed = {"attention.sliding_window": 512}
    path = write_gguf(tmp_path / "m.gguf", "gemma3", values=windowed)
    assert "layer_types" not in gguf_config(read_gguf_header(path))
    assert read_model_spec(path).sliding_window == 512


@pytest.mark.parametrize("window", [0, 2047])
def test_a_phi_without_a_window_says_nought(window: int, tmp_path: Path) -> None:
    values = {"attention.sliding_window": window}
    spec = read_model_spec(write_gguf(tmp_path / "m.gguf", "phi3", values=values))
    assert spec.sliding_window == (window or None)


def test_one_file_of_several_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", values={"split.count": 3})
    with pytest.raises(UnsupportedModelError, match="is one of 3 files") as caught:
        read_model_spec(path)
    assert caught.value.hint == "join them with `llama-gguf-split --merge`"


@pytest.mark.parametrize("key", ["block_count", "attention.layer_norm_rms_epsilon"])
def test_a_missing_value_is_named(key: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    content = path.read_bytes()
    path.write_bytes(content.replace(f"llama.{key}".encode(), f"other.{key}".encode()))
    names = {"block_count": "num_hidden_layers"}
    with pytest.raises(UnsupportedModelError, match=f"has no `.*{names.get(key, key)}`"):
        read_model_spec(path)


def test_a_missing_embedding_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"token_embd.weight", b"other_embd.weight"))
    with pytest.raises(UnsupportedModelError, match=r"has no `token_embd\.weight`"):
        read_model_spec(path)


@pytest.mark.parametrize("key", ["attention.head_count_kv", "attention.key_length"])
def test_layers_of_different_sizes_are_refused(key: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", values={key: [2, 4]})
    with pytest.raises(UnsupportedModelError, match=r"is `\[2, 4\]`, not one positive"):
        read_model_spec(path)


@pytest.mark.parametrize("name", ["mamba", "mistral", "qwen2moe", "clip"])
def test_other_architecture_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=f"the GGUF architecture `{name}`") as caught:
        read_model_spec(write_gguf(tmp_path / "m.gguf", name))
    assert caught.value.hint is not None
    assert "`llama`" in caught.value.hint


@pytest.mark.parametrize("size", [0, 1, 4, 20, 24, 60, 200, 500, 2000, 7000])
def test_file_cut_short_is_no_model(tmp_path: Path, size: int) -> None:
    content = write_gguf(tmp_path / "m.gguf").read_bytes()
    assert size < len(content)
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[:size])
    with pytest.raises(ModelNotFoundError, match="is no complete GGUF file"):
        read_model_spec(path)


def test_other_file_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n" * 10)
    with pytest.raises(ModelNotFoundError, match="is no complete GGUF file"):
        read_model_spec(path)


def test_missing_reader_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UnsupportedModelError, match="needs the `gguf` package") as caught:
        read_model_spec(path)
    assert caught.value.hint == "run `pip install 'neuron-llm[gguf]'`"
