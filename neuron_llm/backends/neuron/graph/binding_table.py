"""What each parameter and output of a compiled graph is, written beside it. Knows no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

GRAPH_FILE = "graph.neuron"
"""The compiled program: a TorchScript module of the trace binding, a NEFF of the other."""
BINDING_FILE = "binding.json"


@dataclass(frozen=True, kw_only=True)
class BindingTable:
    """The table of a graph.

    The order of a device program's parameters follows the traversal of the graph, not the order
    of the call: whoever loads a program by other means than the module needs the names.

    Attributes:
        binding: which of the two compiled it.
        inputs: index tensors, in call order.
        outputs: in order: the result, and where caches are returned, those.
        states: the caches, K and V of each layer in turn, as the program names them.
        aliases: which output takes the place of a state; empty where the state is replaced by name.
        weights: as the artifact's weights file names them, in the module's order.
        compiler_arguments: what neuronx-cc was given.
        hlo_sha256: of what it was given to compile.
    """

    binding: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    states: Sequence[str]
    aliases: Mapping[str, int]
    weights: Sequence[str]
    compiler_arguments: Sequence[str]
    hlo_sha256: Mapping[str, str]

    def write(self, directory: Path) -> None:
        """Write it into a graph's directory."""
        (directory / BINDING_FILE).write_text(json.dumps(asdict(self), indent=1))


def read_binding_table(directory: Path) -> BindingTable:
    """Read the table of a graph's directory, which this version wrote."""
    return BindingTable(**json.loads((directory / BINDING_FILE).read_text()))


def cache_names(num_layers: int) -> list[str]:
    """Return the names of the KV caches in a graph's order: K and V of each layer in turn."""
    return [f"{kind}_{layer}" for layer in range(num_layers) for kind in ("key", "value")]
