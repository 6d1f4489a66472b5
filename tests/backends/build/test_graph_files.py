"""The description of a compiled graph: what is written is read, anything else is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuron_llm.backends.build.files import read_built_graph, write_description
from neuron_llm.backends.graph.spec import ConstantSpec, TensorSpec
from neuron_llm.errors import CompileError

INPUTS = (TensorSpec("input_ids", (8,), "int32"),)
CONSTANTS = (ConstantSpec("c0", "model.norm.weight", (64,), "float32"),)


def described(directory: Path) -> Path:
    write_description(directory, inputs=INPUTS, constants=CONSTANTS, compile_seconds=1.5)
    return directory / "graph.json"


def test_a_description_is_read_as_it_was_written(tmp_path: Path) -> None:
    described(tmp_path)
    graph = read_built_graph(tmp_path)
    assert (graph.inputs, graph.constants, graph.compile_seconds) == (INPUTS, CONSTANTS, 1.5)
    assert graph.graph_key == tmp_path.name


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"inputs": 3}', "\udcff"])
def test_a_file_that_describes_no_graph_names_the_way_out(text: str, tmp_path: Path) -> None:
    described(tmp_path).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CompileError, match=r"graph\.json` does not describe") as caught:
        read_built_graph(tmp_path)
    assert caught.value.hint == f"remove `{tmp_path}` and compile again"


@pytest.mark.parametrize("key", ["inputs", "constants", "compile_seconds"])
def test_a_description_without_one_of_its_keys_is_refused(key: str, tmp_path: Path) -> None:
    path = described(tmp_path)
    description = json.loads(path.read_text())
    del description[key]
    path.write_text(json.dumps(description))
    with pytest.raises(CompileError, match="of this version"):
        read_built_graph(tmp_path)


def test_a_missing_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="of this version"):
        read_built_graph(tmp_path)
