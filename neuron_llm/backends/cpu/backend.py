"""The CPU backend as the rest of the project sees it.

Imports torch only when it builds or loads.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuron_llm.backends.build.builds import GraphBuilder, key_parts, requested_graphs
from neuron_llm.backends.build.cache import GraphCache, content_key
from neuron_llm.backends.cpu.environment import graph_environment, library_versions
from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import missing_features
from neuron_llm.backends.cpu.operators.library import build_library, library_name
from neuron_llm.backends.cpu.target import GRAPH_FILE, CpuTarget
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec
from neuron_llm.backends.protocol import BuildRequest, BuiltGraph, LoadRequest, Session
from neuron_llm.errors import CompileError

if TYPE_CHECKING:
    import torch

_CXX_COMPILER = "g++"


def config_key(spec: GraphSpec, target: CpuTarget) -> str:
    """Return the first-level cache key of a graph: from its specification and target alone."""
    return content_key({**key_parts(spec), "environment": graph_environment(target)})


class CpuBackend:
    """`torch.export` and AOTInductor; every graph is one shared object, weights are mapped once.

    Args:
        target: what graphs are compiled for; what was compiled before brings its own.
    """

    name = "cpu"
    graph_file = GRAPH_FILE

    def __init__(self, target: CpuTarget) -> None:
        self.target = target

    def cached_graphs(self, specs: Sequence[GraphSpec], cache_dir: Path) -> list[bool]:
        """See `Backend.cached_graphs`."""
        cache = GraphCache(cache_dir)
        return [cache.find(config_key(spec, self.target)) is not None for spec in specs]

    def compile_graphs(self, request: BuildRequest) -> list[BuiltGraph]:
        """See `Backend.compile_graphs`."""
        keys = [config_key(spec, self.target) for spec in request.specs]

        def prepare() -> None:
            _require_torch()
            _require_compiler()
            self.operator_library(request.cache_dir)

        return requested_graphs(
            request,
            keys,
            GraphBuilder(
                build=_build,
                target=self.target,
                preload="neuron_llm.backends.cpu.aot",
                prepare=prepare,
            ),
        )

    def shared_files(self, request: BuildRequest, built: Sequence[BuiltGraph]) -> list[Path]:
        """See `Backend.shared_files`: the operator library."""
        library = self.operator_library(request.cache_dir)
        return [] if library is None else [library]

    def operator_library(self, cache_dir: Path) -> Path | None:
        """Return the library of the target, from the cache or newly built; None without one.

        Raises:
            CompileError: it could not be built.
        """
        if not self.target.custom_ops:
            return None
        name = library_name(self.target.isa_level)

        def build(directory: Path) -> None:
            _require_compiler()
            build_library(self.target.isa_level, directory)

        return GraphCache(cache_dir).entry(name, build) / f"{name}.so"

    def lay_out(self, constant: ConstantSpec, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """See `Backend.lay_out`."""
        import torch

        from neuron_llm.backends.cpu.operators.packing import pack_weight

        stack = tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
        return pack_weight(stack) if constant.layout == "packed" else stack

    def load(self, request: LoadRequest) -> Session:
        """See `Backend.load`."""
        from neuron_llm.backends.cpu.session import CpuSession

        return CpuSession(request)

    def versions(self) -> dict[str, str]:
        """See `Backend.versions`."""
        return library_versions()

    def requirements(self) -> dict[str, list[str]]:
        """See `Backend.requirements`: the instruction sets of the target."""
        level = self.target.isa_level
        return {"isa_level": [level], "cpu_features": missing_features(level, ())}

    def diagnose(
        self, versions: Mapping[str, str], requirements: Mapping[str, Sequence[str]]
    ) -> list[str]:
        """See `Backend.diagnose`: another torch, or a narrower CPU."""
        reasons = []
        here = library_versions()["torch"]
        if versions.get("torch") != here:
            reasons.append(f"compiled with torch {versions.get('torch')}, but torch here is {here}")
        missing = sorted(set(requirements.get("cpu_features", ())) - set(cpu_features()))
        if missing:
            reasons.append(f"this CPU lacks {', '.join(f'`{name}`' for name in missing)}")
        return reasons


def _build(spec: GraphSpec, key: str, cache_dir: Path, target: CpuTarget) -> None:
    from neuron_llm.backends.cpu.aot import build_graph

    library = CpuBackend(target).operator_library(cache_dir)
    build_graph(spec, key, GraphCache(cache_dir), target, library)


def _require_torch() -> None:
    """Pass a torch whose compiler can be told for which instruction set to compile.

    Raises:
        CompileError: torch 2.9 cannot, with which a Neuron host runs.
    """
    from torch._inductor import config

    if not hasattr(config.cpp, "march"):
        raise CompileError(
            f"backend `cpu` cannot compile with torch {library_versions()['torch']}: its compiler "
            "takes no instruction set",
            hint="install a newer one, such as torch 2.13",
        )


def _require_compiler() -> None:
    if shutil.which(_CXX_COMPILER) is None:
        raise CompileError(
            f"no C++ compiler: `{_CXX_COMPILER}` is not on PATH",
            hint="install g++ (Debian: `apt-get install g++`); only `compile` needs it, not `run`",
        )
