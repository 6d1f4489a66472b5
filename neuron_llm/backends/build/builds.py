"""The graphs of a request: those that the cache has, and the building of those that it has not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.files import read_built_graph
from neuron_llm.backends.build.pool import BuildTask, build_all
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.protocol import BuildEvent, BuildRequest, BuiltGraph


@dataclass(frozen=True, kw_only=True)
class GraphBuilder:
    """How a backend builds one graph, in a process of its own.

    Attributes:
        build: called with the specification, its first-level key, the root of the cache and the
            target; the cache then has the graph.
        target: what graphs are compiled for.
        preload: a module to import once for all builds.
        prepare: called before the first build, only if there is one.
    """

    build: Callable[..., None]
    target: object
    preload: str
    prepare: Callable[[], object]


def requested_graphs(
    request: BuildRequest, keys: Sequence[str], builder: GraphBuilder
) -> list[BuiltGraph]:
    """Return the graphs of a request in order, from the cache or newly built.

    Args:
        request: what to have.
        keys: the first-level key of every specification.
        builder: how to build what is missing.

    Raises:
        CompileError: graphs failed; the others are in the cache.
    """
    cache = GraphCache(request.cache_dir)
    tasks = []
    for spec, key in zip(request.specs, keys, strict=True):
        if cache.find(key) is not None:
            request.on_event(BuildEvent(spec.bucket.name, "cached"))
        else:
            tasks.append(
                BuildTask(
                    graph=spec.bucket.name,
                    target=builder.build,
                    args=(spec, key, cache.root, builder.target),
                    log=cache.log_path(spec.bucket.name, key),
                )
            )
    if tasks:
        builder.prepare()
        build_all(
            tasks,
            num_jobs=request.num_jobs,
            preload=[builder.preload],
            on_event=request.on_event,
            timeout_s=request.timeout_s,
        )
    directories = [cache.find(key) for key in keys]
    assert None not in directories, "a build ended without an entry in the cache"
    return [read_built_graph(directory) for directory in directories if directory]


def key_parts(spec: GraphSpec) -> dict[str, Any]:
    """Return what a specification adds to the first-level key of its graph."""
    return {
        "bucket": spec.bucket.name,
        "architecture": dict(spec.architecture),
        "dtype": spec.dtype,
        "max_model_len": spec.max_model_len,
        "block_size": spec.block_size,
        "num_blocks": spec.num_blocks,
    }
