"""When a GGUF file is converted, what is kept of a conversion, and what is refused before one."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from neuron_llm.compile.model import checkpoint as checkpoint_module
from neuron_llm.compile.model.checkpoint import checkpoint_of_gguf, convert_gguf
from neuron_llm.compile.model.gguf_header import GgufHeader, GgufTensor
from neuron_llm.compile.model.gguf_weights import ConvertedTensor, write_safetensors
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

pytest.importorskip("gguf")

from gguf_factory import (
    random_blocks,
    type_everything,
    write_gguf_model,
)


def test_a_changed_file_is_converted_anew_and_a_renamed_one_is_not(
    llama_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[Path] = []

    def convert(file: Path, checkpoint: Path) -> None:
        converted.append(file)
        convert_gguf(file, checkpoint)

    monkeypatch.setattr(checkpoint_module, "convert_gguf", convert)
    path = write_gguf_model(tmp_path / "a.gguf", llama_model, type_everything("F16")).path
    first = checkpoint_of_gguf(path, tmp_path / "cache")
    renamed = Path(shutil.copyfile(path, tmp_path / "b.gguf"))
    assert checkpoint_of_gguf(renamed, tmp_path / "cache") == first
    assert converted == [path]
    content = bytearray(path.read_bytes())
    content[-64] ^= 1
    path.write_bytes(content)
    second = checkpoint_of_gguf(path, tmp_path / "cache")
    assert second != first and converted == [path, path]
    one, two = (load_file(directory / "model.safetensors") for directory in (first, second))
    assert sum(not torch.equal(one[name], two[name]) for name in one) == 1


def test_another_converter_converts_anew(
    llama_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf_model(tmp_path / "a.gguf", llama_model).path
    first = checkpoint_of_gguf(path, tmp_path / "cache")
    monkeypatch.setattr(checkpoint_module, "version", lambda name: "another")
    assert checkpoint_of_gguf(path, tmp_path / "cache") != first


def test_a_conversion_that_fails_leaves_nothing(
    llama_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "write_safetensors", fail)
    path = write_gguf_model(tmp_path / "a.gguf", llama_model).path
    with pytest.raises(OSError, match="No space left"):
        checkpoint_of_gguf(path, tmp_path / "cache")
    assert not any((tmp_path / "cache" / "checkpoints").iterdir())
    assert not any((tmp_path / "cache" / "tmp").iterdir())


def test_a_missing_tensor_is_named(llama_model: Path, tmp_path: Path) -> None:
    layers = {"llama.block_count": 3}
    path = write_gguf_model(tmp_path / "a.gguf", llama_model, metadata=layers).path
    with pytest.raises(ModelNotFoundError, match=r"`blk\.2\.attn_q\.weight` is missing"):
        convert_gguf(path, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_a_tensor_of_another_shape_is_named(llama_model: Path, tmp_path: Path) -> None:
    width = {"llama.feed_forward_length": 80}
    path = write_gguf_model(tmp_path / "a.gguf", llama_model, metadata=width).path
    with pytest.raises(ModelNotFoundError) as caught:
        convert_gguf(path, tmp_path / "checkpoint")
    assert caught.value.message.endswith("`blk.0.ffn_gate.weight` is [96, 64], not [80, 64]")


def test_a_tensor_that_the_model_has_no_place_for_is_named(
    llama_model: Path, tmp_path: Path
) -> None:
    experts = {"blk.0.ffn_gate_exps.weight": np.zeros((2, 96, 64), np.float32)}
    path = write_gguf_model(tmp_path / "a.gguf", llama_model, extra=experts).path
    with pytest.raises(UnsupportedModelError, match=r"`blk\.0\.ffn_gate_exps\.weight` .* no place"):
        convert_gguf(path, tmp_path / "checkpoint")


def test_a_tokenizer_of_an_unknown_kind_is_refused(llama_model: Path, tmp_path: Path) -> None:
    path = write_gguf_model(tmp_path / "a.gguf", llama_model).path
    content = path.read_bytes()
    assert content.count(b"gpt2") == 1
    path.write_bytes(content.replace(b"gpt2", b"rwkv"))
    with pytest.raises(ModelNotFoundError, match=r"the tokenizer of .* does not load: .*rwkv"):
        convert_gguf(path, tmp_path / "checkpoint")


def test_converting_holds_a_few_rows_at_a_time(tmp_path: Path) -> None:
    shape = (8192, 1024)
    path = tmp_path / "blocks"
    path.write_bytes(random_blocks("Q4_K", shape).tobytes())
    source = GgufTensor("w", shape, "Q4_K", offset=0, row_bytes=1024 // 256 * 144)
    header = GgufHeader(path, {}, {"w": source})
    tracemalloc.start()
    write_safetensors(header, [ConvertedTensor("w", source, 64, 0.0)], tmp_path / "w.safetensors")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "w.safetensors").stat().st_size > 32 << 20
    assert peak_bytes < 16 << 20
