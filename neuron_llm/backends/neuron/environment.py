"""What a Neuron graph depends on besides its specification: versions and our tracing code."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from neuron_llm.backends.build.sources import sources_digest
from neuron_llm.backends.neuron.packages import NEURONX_DISTRIBUTED, is_stub
from neuron_llm.backends.neuron.target import MODEL_BUILDER, Binding

# What compiles a graph, and what puts graphs together.
_BUILDERS = (
    "neuron_llm.backends.neuron.graph_build",
    "neuron_llm.backends.neuron.model_builder.nxd_model",
)
_LIBRARIES = ("torch", "transformers", "torch-neuronx", "neuronx-cc")
_RUN_TIME_LIBRARIES = ("torch", "torch-neuronx")


def run_time_libraries(binding: str) -> tuple[str, ...]:
    """Return those that running a graph needs, in the versions that compiled it."""
    own = (NEURONX_DISTRIBUTED,) if binding == MODEL_BUILDER else ()
    return (*_RUN_TIME_LIBRARIES, *own)


def library_versions(binding: Binding) -> dict[str, str]:
    """Return the versions of the libraries that trace, compile and run a graph, if installed."""
    names = dict.fromkeys((*_LIBRARIES, *run_time_libraries(binding)))
    found = {name: installed_version(name) for name in names}
    return {name: here for name, here in found.items() if here is not None}


def installed_version(name: str) -> str | None:
    """Return a package's version, or None if it is not installed, or only the public stub is."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return None
    return None if is_stub(package.read_text("METADATA") or "") else package.version


@cache
def graph_environment(binding: Binding) -> dict[str, Any]:
    """Return the part of every cache key that does not come from the configuration."""
    sources = sources_digest(*_BUILDERS, room="neuron_llm.backends")
    return {"versions": library_versions(binding), "sources": sources}
