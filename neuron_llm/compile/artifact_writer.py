"""The files of an artifact: graphs, weights once for all of them, tokenizer and configs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from neuron_llm.artifact.manifest import (
    GRAPHS_DIR,
    SHARED_DIR,
    TOKENIZER_DIR,
    WEIGHTS_FILE,
    ConstantEntry,
    FileEntry,
    GraphEntry,
    Manifest,
    ModelEntry,
    RuntimeSettings,
    TensorEntry,
    WeightsEntry,
    describe_file,
)
from neuron_llm.backends.build.cache import CHECKSUMS_FILE
from neuron_llm.backends.protocol import Backend, BuiltGraph
from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.model.checkpoint import copy_model_files
from neuron_llm.compile.plan.plan import CompilePlan
from neuron_llm.scheduler.buckets import Bucket
from neuron_llm.version import __version__


@dataclass(frozen=True)
class CompiledGraphs:
    """What a backend made of a plan.

    Attributes:
        backend: that compiled it.
        built: a graph of each bucket, in plan order.
        shared_files: what the graphs need besides themselves, see `Backend.shared_files`.
    """

    backend: Backend
    built: Sequence[BuiltGraph]
    shared_files: Sequence[Path]


def write_artifact(
    directory: Path,
    loaded: LoadedConfig,
    plan: CompilePlan,
    checkpoint: Path,
    compiled: CompiledGraphs,
) -> Manifest:
    """Write all of an artifact but its manifest, and return that.

    Args:
        directory: to write into; there, and empty.
        loaded: the configuration.
        plan: what was compiled.
        checkpoint: the Hugging Face directory of the model.
        compiled: the graphs.

    Raises:
        CompileError: a weight holds a number that the dtype cannot.
    """
    backend = compiled.backend
    graphs = tuple(
        _copy_graph(directory, bucket, graph)
        for bucket, graph in zip(plan.buckets.all, compiled.built, strict=True)
    )
    shared_files = _copy_shared_files(directory, compiled.shared_files)
    weights = _write_weights(directory, plan, checkpoint, compiled)
    copies = copy_model_files(checkpoint, directory, TOKENIZER_DIR)
    return Manifest(
        artifact_id="0" * 16,
        name=plan.name,
        neuron_llm_version=__version__,
        backend=backend.name,
        backend_versions=backend.versions(),
        requirements=backend.requirements(),
        config=loaded.config.model_dump(mode="json"),
        settings=_settings(plan),
        model=_model(plan, loaded.config.revision),
        graphs=graphs,
        shared_files=shared_files,
        weights=weights,
        files=tuple(describe_file(directory, path) for path in copies),
    ).identified()


def _write_weights(
    directory: Path, plan: CompilePlan, checkpoint: Path, compiled: CompiledGraphs
) -> WeightsEntry:
    """Write the weights that the graphs read, each once."""
    from neuron_llm.backends.graph.inputs import torch_dtype
    from neuron_llm.compile.weights import load_weights, write_weights

    path = directory / WEIGHTS_FILE
    aliases = write_weights(
        load_weights(checkpoint, torch_dtype(plan.dtype), max_model_len=plan.max_model_len),
        {constant.weight: constant for graph in compiled.built for constant in graph.constants},
        compiled.backend.lay_out,
        path,
    )
    return WeightsEntry(file=describe_file(directory, path), aliases=aliases)


def _model(plan: CompilePlan, revision: str | None) -> ModelEntry:
    return ModelEntry(
        model_type=plan.model.model_type,
        num_layers=plan.model.num_layers,
        num_kv_heads=plan.model.num_kv_heads,
        head_dim=plan.model.head_dim,
        vocab_size=plan.model.vocab_size,
        revision=revision,
    )


def _copy_shared_files(directory: Path, files: Sequence[Path]) -> tuple[FileEntry, ...]:
    copies = [directory / SHARED_DIR / path.name for path in files]
    for path, copy in zip(files, copies, strict=True):
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
    return tuple(describe_file(directory, copy) for copy in copies)


def _settings(plan: CompilePlan) -> RuntimeSettings:
    fields = {name: getattr(plan, name) for name in RuntimeSettings.model_fields}
    return RuntimeSettings.model_validate(fields)


def _copy_graph(directory: Path, bucket: Bucket, graph: BuiltGraph) -> GraphEntry:
    folder = directory / GRAPHS_DIR / bucket.name
    folder.mkdir(parents=True)
    # One by one: of a full disk, copying a whole tree makes a list of tuples.
    for path in sorted(graph.directory.iterdir()):
        if path.name != CHECKSUMS_FILE:
            shutil.copyfile(path, folder / path.name)
    return GraphEntry(
        name=bucket.name,
        **asdict(bucket),
        inputs=tuple(TensorEntry(name=i.name, shape=i.shape, dtype=i.dtype) for i in graph.inputs),
        constants=tuple(
            ConstantEntry.model_validate(asdict(constant)) for constant in graph.constants
        ),
        files=tuple(describe_file(directory, path) for path in sorted(folder.iterdir())),
        graph_key=graph.graph_key,
        compile_seconds=graph.compile_seconds,
    )
