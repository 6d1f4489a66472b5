"""What stands before the numbers of a GGUF file, and every way in which it can be wrong."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.compile.model.gguf_header import read_gguf_header
from neuron_llm.errors import ModelNotFoundError, NeuronLLMError, UnsupportedModelError

gguf = pytest.importorskip("gguf")

Type = gguf.GGMLQuantizationType


def write(path: Path, tensors: dict[str, Any] | None = None, **options: Any) -> Path:
    """Write a file with a value of every type and a few tensors."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -300)
    writer.add_uint32("u32", 1 << 31)
    writer.add_int32("i32", -70000)
    writer.add_uint64("u64", 1 << 63)
    writer.add_int64("i64", -(1 << 40))
    writer.add_float32("f32", 1e-5)
    writer.add_float64("f64", 1e-5)
    writer.add_bool("yes", True)
    writer.add_string("word", "näive")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("fractions", [0.1, 0.25])
    writer.add_array("words", ["a", "bc", ""])
    for name, array in (tensors or example_tensors()).items():
        data, tensor_type = array if isinstance(array, tuple) else (array, None)
        writer.add_tensor(name, data, raw_dtype=tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def example_tensors() -> dict[str, Any]:
    blocks = np.arange(3 * 2 * 34, dtype=np.uint8).reshape(3, 68)
    return {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
        "vector": np.arange(5, dtype=np.float16),
        "blocks": (blocks, Type.Q8_0),
        "experts": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    }


def with_type_code(path: Path, code: int) -> Path:
    """Change how the tensor `vector` is said to be stored; one dimension, then the code."""
    content = bytearray(path.read_bytes())
    at = content.index(b"\x06\0\0\0\0\0\0\0vector") + 14 + 4 + 8
    assert struct.unpack_from("<I", content, at) == (Type.F16,)
    struct.pack_into("<I", content, at, code)
    path.write_bytes(content)
    return path


def test_values_of_every_type_are_read(tmp_path: Path) -> None:
    metadata = dict(read_gguf_header(write(tmp_path / "m.gguf")).metadata)
    assert metadata == {
        "general.architecture": "llama",
        "u8": 200, "i8": -3, "u16": 60000, "i16": -300, "u32": 1 << 31, "i32": -70000,
        "u64": 1 << 63, "i64": -(1 << 40), "f32": 1e-5, "f64": 1e-5, "yes": True, "word": "näive",
        "numbers": [1, 2, 3], "fractions": [0.1, 0.25],
    }  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"use_temp_file": True}])
def test_tensors_lie_where_the_formats_own_reader_finds_them(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    header = read_gguf_header(write(tmp_path / "m.gguf", **options))
    theirs = gguf.GGUFReader(tmp_path / "m.gguf").tensors
    assert [*header.tensors] == [tensor.name for tensor in theirs]
    for tensor in theirs:
        ours = header.tensors[tensor.name]
        assert ours.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert (ours.type_name, ours.num_elements) == (tensor.tensor_type.name, tensor.n_elements)
        stored = header.read(ours, 0, ours.num_rows)
        assert stored.tobytes() == tensor.data.tobytes()
        assert stored.shape == (ours.num_rows, ours.row_bytes)
        last = header.read(ours, ours.num_rows - 1, 1)
        assert last.tolist() == [stored[-1].tolist()]


def test_another_alignment_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    for name in ("a", "b"):
        writer.add_tensor(name, np.full(3, ord(name), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf_header(path)
    assert header.read(header.tensors["b"], 0, 1).view(np.float32).tolist() == [[98.0] * 3]
    assert header.tensors["b"].offset % 256 == 0


@pytest.mark.parametrize("code", [4, 5, 31, 99, 1 << 31])
def test_a_storage_type_that_nobody_knows_is_refused_by_its_number(
    tmp_path: Path, code: int
) -> None:
    path = with_type_code(write(tmp_path / "m.gguf"), code)
    with pytest.raises(UnsupportedModelError) as caught:
        read_gguf_header(path)
    assert caught.value.message == (
        f"`vector` in `{path}` is stored as the GGML type {code}, which is not known here"
    )
    assert caught.value.hint is not None and "Q8_0" in caught.value.hint


@pytest.mark.parametrize("name", ["Q8_1", "Q8_K", "I8", "I32", "F64"])
def test_a_storage_type_that_nobody_expands_is_refused_by_its_name(
    tmp_path: Path, name: str
) -> None:
    path = with_type_code(write(tmp_path / "m.gguf"), Type[name])
    with pytest.raises(UnsupportedModelError, match=f"as {name}, which cannot be expanded"):
        read_gguf_header(path)


def refusal(path: Path) -> str:
    with pytest.raises(ModelNotFoundError) as caught:
        read_gguf_header(path)
    assert caught.value.hint == "download the file again"
    assert caught.value.message.startswith(f"`{path}` is no complete GGUF file: ")
    return caught.value.message.partition(" file: ")[2]


def test_rows_that_blocks_do_not_fill_are_damage(tmp_path: Path) -> None:
    path = with_type_code(write(tmp_path / "m.gguf"), Type.Q4_K)
    reason = "its tensor `vector` is [5], which Q4_K blocks of 256 do not fill"
    assert refusal(path) == reason


def test_missing_numbers_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    size = path.stat().st_size
    end = max(tensor.end for tensor in read_gguf_header(path).tensors.values())
    path.write_bytes(path.read_bytes()[: end - 1])
    assert refusal(path) == f"it has {end - 1} of {end} bytes"
    assert end <= size


def test_two_tensors_of_one_name_are_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"vector", b"matrix"))
    assert refusal(path) == "it has two tensors of one name"


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04" * 9])
def test_other_files_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    assert refusal(tmp_path / "m.gguf")


def test_a_directory_is_none(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


def test_the_first_version_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    path.write_bytes(b"GGUF\1\0\0\0" + path.read_bytes()[8:])
    with pytest.raises(UnsupportedModelError, match="is version 1 GGUF"):
        read_gguf_header(path)


def test_the_other_byte_order_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", endianess=gguf.GGUFEndian.BIG)
    with pytest.raises(UnsupportedModelError, match="is big-endian GGUF"):
        read_gguf_header(path)


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UnsupportedModelError, match="needs the `gguf` package"):
        read_gguf_header(path)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("gguf") / "m.gguf").read_bytes()


@given(st.data())
def test_every_beginning_of_a_file_is_told_from_the_whole(
    example: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    end = len(example.rstrip(b"\0"))
    path.write_bytes(example[: data.draw(st.integers(0, end - 1))])
    assert refusal(path)


@given(st.data())
def test_any_bytes_give_a_header_or_an_error(
    example: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.gguf"
    content = bytearray(example)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 9))
        junk = data.draw(st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 8))
        content[at : at + len(junk)] = junk
    path.write_bytes(content)
    try:
        header = read_gguf_header(path)
    except NeuronLLMError as error:
        assert str(path) in error.message
    else:
        assert all(tensor.end <= len(content) for tensor in header.tensors.values())
