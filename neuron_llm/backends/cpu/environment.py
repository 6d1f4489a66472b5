"""What a compiled graph depends on besides its specification: versions, CPU, our tracing code."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from neuron_llm.backends.cpu.features import cpu_features

_BACKENDS_DIR = Path(__file__).resolve().parent.parent
# Files whose text decides what is traced and how it is compiled.
_TRACED_SOURCES = ("attention.py", "graph_module.py", "inputs.py", "cpu/aot.py", "cpu/export.py")


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that trace, compile and run a graph."""
    return {name: version(name) for name in ("torch", "transformers")}


@cache
def graph_environment() -> dict[str, Any]:
    """Return the part of every cache key that does not come from the configuration."""
    digest = hashlib.sha256()
    for name in _TRACED_SOURCES:
        digest.update((_BACKENDS_DIR / name).read_bytes())
    return {
        "versions": library_versions(),
        "cpu_features": cpu_features(),
        "sources": digest.hexdigest(),
    }
