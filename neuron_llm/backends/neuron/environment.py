"""What a Neuron graph depends on besides its specification: versions and our tracing code."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from neuron_llm.backends.graph_cache import sources_digest

# Files whose text decides what is traced and how it is compiled.
_TRACED_SOURCES = (
    "empty_model.py",
    "experts.py",
    "inputs.py",
    "rotary.py",
    "neuron/export.py",
    "neuron/functional_attention.py",
    "neuron/functional_graph.py",
    "neuron/target.py",
    "neuron/trace.py",
)
_LIBRARIES = ("torch", "transformers", "torch-neuronx", "neuronx-cc")
RUN_TIME_LIBRARIES = ("torch", "torch-neuronx")
"""Those that running a graph needs, in the versions that compiled it."""


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that trace, compile and run a graph, if installed."""
    found = {name: installed_version(name) for name in _LIBRARIES}
    return {name: here for name, here in found.items() if here is not None}


def installed_version(name: str) -> str | None:
    """Return a package's version, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def graph_environment() -> dict[str, Any]:
    """Return the part of every cache key that does not come from the configuration."""
    return {"versions": library_versions(), "sources": sources_digest(_TRACED_SOURCES)}
