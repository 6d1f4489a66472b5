"""The tensor-by-tensor writer against the library that reads what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from neuron_llm.backends.graph.spec import TensorSpec
from neuron_llm.compile.model.safetensors_writer import SafetensorsWriter

DTYPES = [
    *("float64", "float32", "float16", "bfloat16"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
]


def tensor_of(dtype: str, *shape: int) -> torch.Tensor:
    numbers = torch.arange(torch.Size(shape).numel()) % 100
    return numbers.to(getattr(torch, dtype)).view(shape)


def write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    layout = [
        TensorSpec(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in tensors.items()
    ]
    with SafetensorsWriter(path, layout) as writer:
        for tensor in tensors.values():
            writer.write(tensor)


def test_every_dtype_comes_back_as_the_library_would_have_written_it(tmp_path: Path) -> None:
    tensors = {dtype: tensor_of(dtype, 3, index + 1) for index, dtype in enumerate(DTYPES)}
    write(tmp_path / "ours", tensors)
    save_file(tensors, tmp_path / "theirs")
    ours, theirs = load_file(tmp_path / "ours"), load_file(tmp_path / "theirs")
    assert set(ours) == set(theirs) == set(DTYPES)
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype and torch.equal(tensor, theirs[name])


def test_scalars_and_transposed_tensors_keep_their_values(tmp_path: Path) -> None:
    tensors = {"scalar": torch.tensor(7.0), "transposed": tensor_of("bfloat16", 3, 5).t()}
    write(tmp_path / "file", tensors)
    loaded = load_file(tmp_path / "file")
    assert loaded["scalar"] == 7 and loaded["scalar"].dim() == 0
    assert torch.equal(loaded["transposed"], tensors["transposed"])


@pytest.mark.parametrize("name_length", [1, 7, 30, 63, 64, 65])
def test_data_begins_where_the_widest_loads_may(name_length: int, tmp_path: Path) -> None:
    write(tmp_path / "file", {"n" * name_length: tensor_of("float32", 4)})
    header_size = int.from_bytes((tmp_path / "file").read_bytes()[:8], "little")
    assert (8 + header_size) % 64 == 0
    with safe_open(tmp_path / "file", framework="pt") as file:
        assert list(file.keys()) == ["n" * name_length]


def test_a_tensor_that_is_not_the_next_one_is_our_mistake(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="first"),
        SafetensorsWriter(tmp_path / "file", [TensorSpec("first", (2,), "float32")]) as writer,
    ):
        writer.write(torch.zeros(3))
    with (
        pytest.raises(AssertionError, match="not written"),
        SafetensorsWriter(tmp_path / "file", [TensorSpec("first", (2,), "float32")]),
    ):
        pass
