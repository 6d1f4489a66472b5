"""What a compiled graph depends on besides its specification: versions, CPU, our tracing code."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

from neuron_llm.backends.build.sources import sources_digest
from neuron_llm.backends.cpu.operators.library import library_name
from neuron_llm.backends.cpu.target import CpuTarget

_BUILDER = "neuron_llm.backends.cpu.aot"


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that trace, compile and run a graph."""
    return {name: version(name) for name in ("torch", "transformers")}


@cache
def graph_environment(target: CpuTarget) -> dict[str, Any]:
    """Return the part of every cache key that does not come from the configuration."""
    return {
        "versions": library_versions(),
        "isa_level": target.isa_level,
        "operators": library_name(target.isa_level) if target.custom_ops else None,
        "sources": sources_digest(_BUILDER, room="neuron_llm.backends"),
    }
