"""The description that lies beside every compiled graph. Knows no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from neuron_llm.backends.graph.spec import ConstantSpec, TensorSpec
from neuron_llm.backends.protocol import BuiltGraph
from neuron_llm.errors import CompileError

DESCRIPTION_FILE = "graph.json"


def write_description(
    directory: Path,
    *,
    inputs: Sequence[TensorSpec],
    constants: Sequence[ConstantSpec],
    compile_seconds: float,
) -> None:
    """Write what `read_built_graph` reads."""
    description = {
        "inputs": [asdict(tensor) for tensor in inputs],
        "constants": [asdict(constant) for constant in constants],
        "compile_seconds": round(compile_seconds, 3),
    }
    (directory / DESCRIPTION_FILE).write_text(json.dumps(description, indent=1))


def read_built_graph(directory: Path) -> BuiltGraph:
    """Read a cache entry's description.

    Raises:
        CompileError: it is missing, or another version of this program wrote it.
    """
    path = directory / DESCRIPTION_FILE
    try:
        description = json.loads(path.read_text())
        return BuiltGraph(
            directory=directory,
            graph_key=directory.name,
            constants=tuple(
                ConstantSpec(**{**c, "shape": tuple(c["shape"]), "parts": tuple(c["parts"])})
                for c in description["constants"]
            ),
            inputs=tuple(
                TensorSpec(i["name"], tuple(i["shape"]), i["dtype"]) for i in description["inputs"]
            ),
            compile_seconds=float(description["compile_seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CompileError(
            f"`{path}` does not describe a graph of this version",
            hint=f"remove `{directory}` and compile again",
        ) from error
