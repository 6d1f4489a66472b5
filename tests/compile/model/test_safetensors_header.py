import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from neuron_llm.compile.model.quantized_tensors import TensorInfo
from neuron_llm.compile.model.safetensors_header import (
    read_header,
    read_shapes,
    summarise_weights,
)
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

TENSORS: dict[str, npt.NDArray[Any]] = {
    "a": np.zeros((2, 3), np.float32),
    "lm_head.weight": np.zeros((5,), np.float16),
}


def write_raw(path: Path, header: object, data_bytes: int = 0) -> Path:
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + bytes(data_bytes))
    return path


def entry(dtype: str, num_bytes: int = 4, shape: tuple[int, ...] = (4,)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, num_bytes]}


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
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        "[" * 100_000,
        '{"weight_map": 1}',
        '{"weight_map": null}',
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": null}}',
        '{"weight_map": {"a": ["m-1.safetensors"]}}',
        '{"weight_map": {"a": ""}}',
        '{"weight_map": {"a": "../m-1.safetensors"}}',
        '{"weight_map": {"a": "/etc/passwd"}}',
    ],
)
def test_broken_index_is_named(tmp_path: Path, content: str) -> None:
    write_shards(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(content)
    for read in (summarise_weights, read_shapes):
        with pytest.raises(ModelNotFoundError) as caught:
            read(tmp_path)
        assert caught.value.message == f"`{index}` is no index of safetensors files"


def test_weight_that_its_shard_lacks_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    shard_of = {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}
    index.write_text(json.dumps({"weight_map": shard_of}))
    with pytest.raises(ModelNotFoundError) as caught:
        summarise_weights(tmp_path)
    assert caught.value.message == (
        f"`{index}` says that `c` is in `m-1.safetensors`, and it is not there"
    )
    shard_of = {"a": "m-2.safetensors", "b": "m-1.safetensors"}
    index.write_text(json.dumps({"weight_map": shard_of}))
    with pytest.raises(ModelNotFoundError, match=r"`a` is in `m-2\.safetensors`, and it is not"):
        summarise_weights(tmp_path)


def test_weight_in_two_shards_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path)
    both = {"a": TENSORS["a"], "b": TENSORS["a"]}
    save_file(both, tmp_path / "m-2.safetensors")
    with pytest.raises(ModelNotFoundError) as caught:
        read_shapes(tmp_path)
    assert caught.value.message == (
        f"`{tmp_path}` has `a` in `m-1.safetensors` and in `m-2.safetensors`"
    )


def test_every_shard_is_looked_into(tmp_path: Path) -> None:
    write_shards(tmp_path)
    path = tmp_path / "m-2.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelNotFoundError, match=r"m-2\.safetensors` is cut short"):
        summarise_weights(tmp_path)


def test_one_file_goes_before_an_index(tmp_path: Path) -> None:
    write_shards(tmp_path)
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert sorted(read_shapes(tmp_path)) == sorted(TENSORS)


@pytest.mark.parametrize(
    "entries",
    [
        {"a": entry("F32", 12, (4,))},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": entry("F32", 4, (1,)), "b": entry("F32", 4, (1,))},
        {"a": entry("F99", 4, (1,))},
    ],
    ids=["too few bytes", "a hole", "shared bytes", "unknown dtype"],
)
def test_numbers_that_are_not_where_the_header_says_are_damage(
    tmp_path: Path, entries: dict[str, object]
) -> None:
    path = write_raw(tmp_path / "m.safetensors", entries, 16)
    with pytest.raises(ModelNotFoundError, match="is no safetensors file: "):
        read_header(path)


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


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [("F8_E4M3", 4), ("F8_E5M2", 4), ("F6_E2M3", 3), ("U8", 4), ("I8", 4), ("F4", 2)],
)
def test_quantised_weights_are_refused(tmp_path: Path, dtype: str, num_bytes: int) -> None:
    write_raw(tmp_path / "model.safetensors", {"w": entry(dtype, num_bytes)}, num_bytes)
    with pytest.raises(UnsupportedModelError, match=f"`w` in .* is stored as {dtype}"):
        summarise_weights(tmp_path)


def test_integers_are_no_weights(tmp_path: Path) -> None:
    write_raw(tmp_path / "model.safetensors", {"ids": entry("I64", 32)}, 32)
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
