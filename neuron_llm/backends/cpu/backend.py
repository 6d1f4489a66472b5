"""The CPU backend as the rest of the project sees it.

Imports torch only when it builds or loads.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from neuron_llm.backends.build_pool import BuildTask, build_all
from neuron_llm.backends.cpu.environment import graph_environment, library_versions
from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.graph_files import read_built_graph
from neuron_llm.backends.graph_cache import GraphCache, content_key
from neuron_llm.backends.protocol import (
    BuildEvent,
    BuiltGraph,
    CompileJob,
    GraphSpec,
    LoadJob,
    Session,
)
from neuron_llm.errors import CompileError

_CXX_COMPILER = "g++"


def config_key(spec: GraphSpec) -> str:
    """Return the first-level cache key of a graph: from its specification alone."""
    return content_key(
        {
            "bucket": spec.bucket.name,
            "architecture": dict(spec.architecture),
            "dtype": spec.dtype,
            "max_model_len": spec.max_model_len,
            "block_size": spec.block_size,
            "num_blocks": spec.num_blocks,
            "environment": graph_environment(),
        }
    )


class CpuBackend:
    """`torch.export` and AOTInductor; every graph is one shared object, weights are mapped once."""

    name = "cpu"

    def cached_graphs(self, specs: Sequence[GraphSpec], cache_dir: Path) -> list[bool]:
        """See `Backend.cached_graphs`."""
        cache = GraphCache(cache_dir)
        return [cache.find(config_key(spec)) is not None for spec in specs]

    def compile_graphs(self, job: CompileJob) -> list[BuiltGraph]:
        """See `Backend.compile_graphs`."""
        cache = GraphCache(job.cache_dir)
        keys = [config_key(spec) for spec in job.specs]
        tasks = []
        for spec, key in zip(job.specs, keys, strict=True):
            if cache.find(key) is not None:
                job.on_event(BuildEvent(spec.bucket.name, "cached"))
            else:
                tasks.append(self._task(spec, key, cache))
        if tasks:
            _require_compiler()
            build_all(
                tasks,
                num_jobs=job.num_jobs,
                preload=["neuron_llm.backends.cpu.aot"],
                on_event=job.on_event,
            )
        directories = [cache.find(key) for key in keys]
        assert None not in directories, "a build ended without an entry in the cache"
        return [read_built_graph(directory) for directory in directories if directory]

    def load(self, job: LoadJob) -> Session:
        """See `Backend.load`."""
        from neuron_llm.backends.cpu.session import CpuSession

        return CpuSession(job)

    def versions(self) -> dict[str, str]:
        """See `Backend.versions`."""
        return library_versions()

    def requirements(self) -> dict[str, list[str]]:
        """See `Backend.requirements`: the CPU's instruction sets."""
        return {"cpu_features": cpu_features()}

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

    def _task(self, spec: GraphSpec, key: str, cache: GraphCache) -> BuildTask:
        return BuildTask(
            graph=spec.bucket.name,
            target=_build,
            args=(spec, key, cache.root),
            log=cache.log_path(spec.bucket.name, key),
        )


def _build(spec: GraphSpec, key: str, cache_dir: Path) -> None:
    from neuron_llm.backends.cpu.aot import build_into_cache

    build_into_cache(spec, key, cache_dir)


def _require_compiler() -> None:
    if shutil.which(_CXX_COMPILER) is None:
        raise CompileError(
            f"no C++ compiler: `{_CXX_COMPILER}` is not on PATH",
            hint="install g++ (Debian: `apt-get install g++`); only `compile` needs it, not `run`",
        )
