import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from neuron_llm.compile.safetensors_header import TensorInfo, read_header, summarise_weights
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

TENSORS: dict[str, npt.NDArray[Any]] = {
    "a": np.zeros((2, 3), np.float32),
    "lm_head.weight": np.zeros((5,), np.float16),
}


def write_raw(path: Path, header: object, data_bytes: int = 0) -> Path:
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(data_bytes))
    return path


def entry(dtype: str, num_elements: int = 4) -> dict[str, object]:
    return {"dtype": dtype, "shape": [num_elements], "data_offsets": [0, num_elements]}


def test_reads_names_dtypes_and_sizes(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "m.safetensors", metadata={"format": "pt"})
    assert sorted(read_header(tmp_path / "m.safetensors"), key=lambda t: t.name) == [
        TensorInfo("a", "F32", (2, 3)),
        TensorInfo("lm_head.weight", "F16", (5,)),
    ]


def test_directory_without_safetensors_has_no_summary(tmp_path: Path) -> None:
    assert summarise_weights(tmp_path) is None


def test_other_copies_of_the_weights_are_left_alone(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    save_file(TENSORS, tmp_path / "consolidated.safetensors")
    summary = summarise_weights(tmp_path)
    assert summary is not None
    assert summary.num_elements == {"a": 6, "lm_head.weight": 5}
    assert summary.dtype == "float32"
    assert summary.has_output_projection
    assert summary.count_parameters(tie_word_embeddings=False) == 11
    assert summary.count_parameters(tie_word_embeddings=True) == 6


def write_shards(directory: Path) -> None:
    save_file({"a": TENSORS["a"]}, directory / "m-1.safetensors")
    save_file({"b": TENSORS["a"]}, directory / "m-2.safetensors")
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    write_shards(tmp_path)
    summary = summarise_weights(tmp_path)
    assert summary is not None
    assert summary.num_elements == {"a": 6, "b": 6}


def test_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    (tmp_path / "m-2.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"lacks 1 of 2 files: `m-2\.safetensors`"):
        summarise_weights(tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"weight_map": 1}', '{"weight_map": {"a": 1}}']
)
def test_broken_index_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelNotFoundError, match="is no index of safetensors files"):
        summarise_weights(tmp_path)


def test_file_cut_short_is_found_by_its_length(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    content = save(TENSORS)
    path.write_bytes(content[:-1])
    with pytest.raises(ModelNotFoundError) as caught:
        summarise_weights(tmp_path)
    assert caught.value.message == (
        f"`{path}` is cut short: {len(content) - 1} of {len(content)} bytes"
    )


def test_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    with pytest.raises(ModelNotFoundError, match="is a Git LFS pointer") as caught:
        summarise_weights(tmp_path)
    assert caught.value.hint == "run `git lfs pull` in the model's directory"


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "U8", "I8", "F4"])
def test_quantised_weights_are_refused(tmp_path: Path, dtype: str) -> None:
    write_raw(tmp_path / "model.safetensors", {"w": entry(dtype)}, 4)
    with pytest.raises(UnsupportedModelError, match=f"`w` in .* is stored as {dtype}"):
        summarise_weights(tmp_path)


def test_integers_are_no_weights(tmp_path: Path) -> None:
    write_raw(tmp_path / "model.safetensors", {"ids": entry("I64")}, 4)
    assert summarise_weights(tmp_path) is None


@pytest.mark.parametrize(
    "header",
    [[], 1, {"a": 1}, {"a": {}}, {"a": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}}],
)
def test_header_of_another_kind_is_no_safetensors_file(tmp_path: Path, header: object) -> None:
    path = write_raw(tmp_path / "m.safetensors", header)
    with pytest.raises(ModelNotFoundError, match="is no safetensors file"):
        read_header(path)


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="is not readable: Is a directory"):
        read_header(tmp_path)


@given(st.binary(max_size=40), st.integers(0, 200))
def test_any_bytes_give_tensors_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, keep: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.safetensors"
    for content in (junk, save(TENSORS)[:keep] + junk):
        path.write_bytes(content)
        try:
            assert all(tensor.num_elements >= 0 for tensor in read_header(path))
        except ModelNotFoundError as error:
            assert str(path) in error.message
