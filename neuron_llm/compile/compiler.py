"""From a loaded configuration to an artifact on disk.

The order is: what can be refused, graphs (from the cache or built), weights once, tokenizer and
configs, manifest. The artifact appears under its name in one step, when it is whole; a run that has
the old one open keeps it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from neuron_llm.artifact.latest import mark_latest
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
from neuron_llm.artifact.scratch import artifact_scratch
from neuron_llm.backends.build.cache import CHECKSUMS_FILE, GraphCache
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.protocol import Backend, BuildListener, BuiltGraph, CompileJob
from neuron_llm.backends.registry import get_backend
from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.destination import check_destination, put_in_place
from neuron_llm.compile.model.checkpoint import (
    checkpoint_of_gguf,
    copy_model_files,
    read_architecture,
)
from neuron_llm.compile.model.checkpoint_check import check_checkpoint
from neuron_llm.compile.plan.plan import CompilePlan, NeuronPlan
from neuron_llm.compile.verify.artifact_graphs import verified
from neuron_llm.scheduler.buckets import Bucket
from neuron_llm.version import __version__


@dataclass(frozen=True)
class CompileOptions:
    """How to compile, as opposed to what.

    Attributes:
        artifacts_dir: the artifact becomes `artifacts_dir/<configuration name>`.
        cache_dir: root of the compile cache.
        num_jobs: graphs that are built at the same time.
        force: replace an artifact of another configuration.
        isa_level: instructions that graphs may use, see `CpuTarget.choose`; None is this CPU's.
        custom_ops: see `CpuTarget`.
        verify: whether every graph is held to the eager model before the artifact is shipped.
        timeout_s: seconds after which building one graph is given up; None for no limit.
        extend: replace an artifact that is the same save that it lacks graphs.
    """

    artifacts_dir: Path
    cache_dir: Path
    num_jobs: int
    force: bool
    isa_level: str | None = None
    custom_ops: bool = True
    verify: bool = True
    timeout_s: float | None = None
    extend: bool = False

    def backend(self, plan: CompilePlan) -> Backend:
        """Return the backend that compiles a plan.

        Raises:
            ArtifactError: it is not installed here.
            CompileError: this CPU does not have the instruction set level.
        """
        return get_backend(
            plan.backend,
            isa_level=self.isa_level,
            custom_ops=self.custom_ops,
            neuron_target=None if plan.neuron is None else neuron_target(plan.neuron),
        )


def neuron_target(plan: NeuronPlan) -> NeuronTarget:
    """Return what the Neuron backend compiles a plan for."""
    return NeuronTarget(
        target=plan.target,
        logical_nc_config=plan.logical_nc_config,
        kv_segment_size_buckets=plan.kv_segment_size_buckets,
        compiler_args=plan.compiler_args,
        binding=plan.binding,
        samples_greedily=plan.on_device_sampling is not None,
    )


@dataclass(frozen=True)
class CompileResult:
    """What `compile_artifact` did.

    Attributes:
        artifact: its directory.
        manifest: its index.
        obstacles: why the graphs do not run on this machine, and so were not verified.
    """

    artifact: Path
    manifest: Manifest
    obstacles: tuple[str, ...] = ()


def compile_artifact(
    loaded: LoadedConfig, plan: CompilePlan, options: CompileOptions, on_event: BuildListener
) -> CompileResult:
    """Compile every graph of a plan and write the artifact; it becomes the latest.

    Args:
        loaded: the configuration the plan was made from.
        plan: what to compile.
        options: where and how.
        on_event: told about every graph.

    Raises:
        CompileError: graphs failed, and the others are in the cache; or a graph does not compute
            what the model does.
        ArtifactError: the artifact could not be put where it belongs, see `check_destination`.
        ModelNotFoundError: the checkpoint is incomplete, see `check_checkpoint`.
    """
    backend = options.backend(plan)
    destination = options.artifacts_dir / plan.name
    config = loaded.config.model_dump(mode="json")
    check_destination(destination, config, force=options.force, extend=options.extend)
    obstacles = backend.diagnose(backend.versions(), backend.requirements())
    with GraphCache(options.cache_dir).session():
        checkpoint = resolve_checkpoint(loaded, options.cache_dir)
        check_checkpoint(checkpoint)
        job = CompileJob(
            specs=graph_specs(loaded, plan),
            cache_dir=options.cache_dir,
            num_jobs=options.num_jobs,
            on_event=on_event,
            timeout_s=options.timeout_s,
        )
        built = backend.compile_graphs(job)
        shared_files = backend.shared_files(job, built)
        options.artifacts_dir.mkdir(parents=True, exist_ok=True)
        with artifact_scratch(options.artifacts_dir) as scratch:
            directory = scratch / plan.name
            directory.mkdir()
            shared = _copy_shared_files(directory, shared_files)
            compiled = (backend, built, shared)
            manifest = _write_artifact(directory, loaded, plan, checkpoint, compiled)
            if options.verify and not obstacles:
                manifest = verified(manifest, directory, checkpoint, destination, on_event)
            manifest.write(directory)
            put_in_place(
                directory, destination, manifest, force=options.force, extend=options.extend
            )
    mark_latest(destination)
    return CompileResult(destination, manifest, tuple(obstacles))


def resolve_checkpoint(loaded: LoadedConfig, cache_dir: Path) -> Path:
    """Return the Hugging Face directory of a configuration's model."""
    model_path = loaded.model_path
    assert model_path is not None, "a model from the hub is downloaded before it is planned"
    return checkpoint_of_gguf(model_path, cache_dir) if model_path.is_file() else model_path


def graph_specs(loaded: LoadedConfig, plan: CompilePlan) -> tuple[GraphSpec, ...]:
    """Return the specification of every graph of a plan, in plan order."""
    assert loaded.model_path is not None, "a model from the hub is downloaded before it is planned"
    architecture = read_architecture(loaded.model_path)
    return tuple(
        GraphSpec(
            bucket=bucket,
            architecture=architecture,
            dtype=plan.dtype,
            max_model_len=plan.max_model_len,
            block_size=plan.block_size,
            num_blocks=plan.num_blocks,
        )
        for bucket in plan.buckets.all
    )


def _write_artifact(
    directory: Path,
    loaded: LoadedConfig,
    plan: CompilePlan,
    checkpoint: Path,
    compiled: tuple[Backend, Sequence[BuiltGraph], tuple[FileEntry, ...]],
) -> Manifest:
    from neuron_llm.backends.graph.inputs import torch_dtype
    from neuron_llm.compile.weights import load_weights, write_weights

    backend, built, shared_files = compiled
    graphs = tuple(
        _copy_graph(directory, bucket, graph)
        for bucket, graph in zip(plan.buckets.all, built, strict=True)
    )
    aliases = write_weights(
        load_weights(checkpoint, torch_dtype(plan.dtype), max_model_len=plan.max_model_len),
        {constant.weight: constant for graph in built for constant in graph.constants},
        backend.lay_out,
        directory / WEIGHTS_FILE,
    )
    weights = WeightsEntry(file=describe_file(directory, directory / WEIGHTS_FILE), aliases=aliases)
    copies = copy_model_files(checkpoint, directory, TOKENIZER_DIR)
    files = tuple(describe_file(directory, path) for path in copies)
    config = loaded.config.model_dump(mode="json")
    return Manifest(
        artifact_id="0" * 16,
        name=plan.name,
        neuron_llm_version=__version__,
        backend=backend.name,
        backend_versions=backend.versions(),
        requirements=backend.requirements(),
        config=config,
        settings=_settings(plan),
        model=ModelEntry(
            model_type=plan.model.model_type,
            num_layers=plan.model.num_layers,
            num_kv_heads=plan.model.num_kv_heads,
            head_dim=plan.model.head_dim,
            vocab_size=plan.model.vocab_size,
            revision=loaded.config.revision,
        ),
        graphs=graphs,
        shared_files=shared_files,
        weights=weights,
        files=files,
    ).identified()


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
