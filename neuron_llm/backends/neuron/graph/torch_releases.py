"""What differs between torch 2.9, the last that torch-neuronx pairs with, and 2.13.

TorchScript, in which torch_neuronx gives its graphs, is deprecated in later ones and warns at
every use; their `run_decompositions` warns about its own pickling; and conversions carry checks of
their operand's metadata, which compute nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_METADATA_CHECK = "aten._assert_tensor_metadata.default"


def core_form(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return an exported program in core operators, without checks of metadata."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        core: torch.export.ExportedProgram = exported.run_decompositions()
    for node in list(core.graph.nodes):
        if str(node.target) == _METADATA_CHECK:
            core.graph.erase_node(node)
    return core


@contextmanager
def torchscript() -> Iterator[None]:
    """Let TorchScript be used: deprecated or not, it is what torch_neuronx speaks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def save_script(module: Any, path: Path) -> None:
    """Write a traced module."""
    with torchscript():
        torch.jit.save(module, str(path))


def load_script(path: Path) -> Any:
    """Read a traced module onto the host."""
    with torchscript():
        return torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
