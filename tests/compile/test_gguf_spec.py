import sys
from pathlib import Path

import numpy as np
import pytest

from neuron_llm.compile.model_spec import ModelSpec, read_model_spec
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

gguf = pytest.importorskip("gguf")


def write_gguf(
    path: Path, architecture: str = "llama", *, output: bool = False, dtype: type = np.float32
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
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


def test_other_architecture_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="the GGUF architecture `mamba`") as caught:
        read_model_spec(write_gguf(tmp_path / "m.gguf", "mamba"))
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
