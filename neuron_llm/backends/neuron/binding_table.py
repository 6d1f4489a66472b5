"""What each parameter and output of a compiled graph is, written beside it. Knows no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GRAPH_FILE = "graph.pt"
BINDING_FILE = "binding.json"


def binding_table(
    *,
    inputs: Sequence[str],
    weights: Sequence[str],
    num_layers: int,
    compiler_arguments: Sequence[str],
    work_dir: Path,
) -> dict[str, Any]:
    """Return the table of a graph.

    The order of a device program's parameters follows the traversal of the graph, not the order
    of the call: whoever loads a program by other means than the module needs the names.

    Args:
        inputs: index tensors, in call order.
        weights: as the artifact's weights file names them, in the module's order.
        num_layers: each has a state for its keys and one for its values.
        compiler_arguments: what neuronx-cc was given.
        work_dir: where it left its input; every HLO module found there is named by its hash.
    """
    states = [f"{kind}.{layer}" for layer in range(num_layers) for kind in ("key", "value")]
    return {
        "inputs": list(inputs),
        "outputs": ["logits", *states],
        "aliases": {state: 1 + index for index, state in enumerate(states)},
        "weights": list(weights),
        "compiler_arguments": list(compiler_arguments),
        "hlo_sha256": {
            path.relative_to(work_dir).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(work_dir.rglob("*.hlo*"))
        },
    }


def write_binding_table(directory: Path, table: dict[str, Any]) -> None:
    """Write a table into a graph's directory."""
    (directory / BINDING_FILE).write_text(json.dumps(table, indent=1))
