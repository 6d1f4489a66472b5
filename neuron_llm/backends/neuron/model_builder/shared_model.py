"""The model of all graphs in the cache: found there, or put together in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from neuron_llm.backends.build.cache import GraphCache, content_key
from neuron_llm.backends.build.inventory import JOINED_PREFIX
from neuron_llm.backends.build.pool import BuildTask, build_all
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.protocol import BuildEvent, BuildRequest, BuildStatus, BuiltGraph
from neuron_llm.errors import CompileError

_KEY_DIGITS = 32
_TASK_NAME = "the model of all graphs"
_STATUSES: dict[BuildStatus, BuildStatus] = {"started": "joining", "built": "joined"}


def shared_model(request: BuildRequest, built: Sequence[BuiltGraph], target: NeuronTarget) -> Path:
    """Return the file that all graphs of a request share.

    It is the same for the same graphs, whatever weights they will have; one more graph makes
    another.

    Args:
        request: its specifications, in the order of `built`.
        built: the graphs, in the cache.
        target: what they were compiled for.

    Raises:
        CompileError: a graph is not what tracing its bucket gives, or the process failed.
    """
    cache = GraphCache(request.cache_dir)
    names = [spec.bucket.name for spec in request.specs]
    graphs = [[name, graph.graph_key] for name, graph in zip(names, built, strict=True)]
    key = f"{JOINED_PREFIX}{content_key(graphs)[:_KEY_DIGITS]}"
    directories = [graph.directory for graph in built]

    def join(directory: Path) -> None:
        _put_together(request, directories, target, directory / f"{key}.pt")

    return cache.entry(key, join) / f"{key}.pt"


def _put_together(
    request: BuildRequest, directories: list[Path], target: NeuronTarget, path: Path
) -> None:
    cache = GraphCache(request.cache_dir)
    with cache.scratch() as scratch:
        fault_file = scratch / "fault.json"

        def tell(event: BuildEvent) -> None:
            status = _STATUSES.get(event.status, event.status)
            if status == "joined" and fault_file.is_file():
                status = "failed"
            request.on_event(BuildEvent(event.graph, status, event.seconds))

        task = BuildTask(
            graph=_TASK_NAME,
            target=_build,
            args=(request.specs, directories, target, path, fault_file),
            log=cache.log_path("nxd_model", path.stem.removeprefix(JOINED_PREFIX)),
        )
        build_all(
            [task],
            num_jobs=1,
            preload=["neuron_llm.backends.neuron.graph_build"],
            on_event=tell,
            timeout_s=request.timeout_s,
        )
        if fault_file.is_file():
            raise CompileError(**json.loads(fault_file.read_text()))


def _build(*args: object) -> None:
    from neuron_llm.backends.neuron.model_builder.nxd_model import put_together_or_tell

    put_together_or_tell(*args)  # type: ignore[arg-type]
