"""From a loaded configuration to an artifact on disk.

The order is: what can be refused, graphs (from the cache or built), weights once, tokenizer and
configs, manifest. The artifact appears under its name in one step, when it is whole; a run that has
the old one open keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from neuron_llm.artifact.arguments import check_type
from neuron_llm.artifact.latest import mark_latest
from neuron_llm.artifact.manifest import Manifest
from neuron_llm.artifact.scratch import artifact_scratch
from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.protocol import BuildListener, BuildRequest
from neuron_llm.compile.artifact_writer import CompiledGraphs, write_artifact
from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.destination import check_destination, put_in_place
from neuron_llm.compile.model.checkpoint import checkpoint_of_gguf, read_architecture
from neuron_llm.compile.model.checkpoint_check import check_checkpoint
from neuron_llm.compile.options import CompileOptions
from neuron_llm.compile.plan.plan import CompilePlan
from neuron_llm.compile.planned_model import PlannedModel, plan_model
from neuron_llm.compile.verify.artifact_graphs import with_verdicts


@dataclass(frozen=True)
class CompileResult:
    """What `compile_artifact` did.

    Attributes:
        artifact: its directory.
        manifest: its index.
        plan: what was compiled.
        obstacles: why the graphs do not run on this machine, and so were not verified.
    """

    artifact: Path
    manifest: Manifest
    plan: CompilePlan
    obstacles: tuple[str, ...] = ()


def compile_model(
    config: str | Path,
    options: CompileOptions | None = None,
    *,
    added_buckets: Iterable[str] = (),
    on_event: BuildListener = lambda event: None,
    on_progress: Callable[[str], None] = lambda text: None,
) -> CompileResult:
    """Compile a configuration file into an artifact, which becomes the latest of its folder.

    Args:
        config: the YAML file; its name becomes the artifact's.
        options: where and how; the command line's defaults if None.
        added_buckets: see `plan_model`.
        on_event: told about every graph.
        on_progress: told what takes time before the first graph.

    Raises:
        NeuronLLMError: see `plan_model` and `compile_planned`.
    """
    options = CompileOptions() if options is None else options
    check_type(options, "options", CompileOptions)
    planned = plan_model(config, added_buckets=added_buckets, on_progress=on_progress)
    return compile_planned(planned, options, on_event)


def compile_planned(
    planned: PlannedModel, options: CompileOptions, on_event: BuildListener
) -> CompileResult:
    """Compile what was planned; with added buckets, the artifact that lacks them may be replaced.

    Raises:
        NeuronLLMError: see `compile_artifact`.
    """
    extending = replace(options, extend=options.extend or bool(planned.added_buckets))
    return compile_artifact(planned.loaded, planned.plan, extending, on_event)


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
        request = BuildRequest(
            specs=graph_specs(loaded, plan),
            cache_dir=options.cache_dir,
            num_jobs=options.num_jobs,
            on_event=on_event,
            timeout_s=options.timeout_s,
        )
        built = backend.compile_graphs(request)
        compiled = CompiledGraphs(backend, built, backend.shared_files(request, built))
        options.artifacts_dir.mkdir(parents=True, exist_ok=True)
        with artifact_scratch(options.artifacts_dir) as scratch:
            directory = scratch / plan.name
            directory.mkdir()
            manifest = write_artifact(directory, loaded, plan, checkpoint, compiled)
            if options.verify and not obstacles:
                manifest = with_verdicts(manifest, directory, checkpoint, destination, on_event)
            manifest.write(directory)
            put_in_place(
                directory, destination, manifest, force=options.force, extend=options.extend
            )
    mark_latest(destination)
    return CompileResult(destination, manifest, plan, tuple(obstacles))


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
