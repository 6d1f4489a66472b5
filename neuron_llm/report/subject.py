"""What a report is about: the graphs of a configuration, or of an artifact. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from neuron_llm.artifact.manifest import TOKENIZER_DIR, Manifest, read_manifest
from neuron_llm.backends.neuron.target import MODEL_BUILDER
from neuron_llm.compile.config.config import Config
from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.model.model_spec import read_json, spec_from_config
from neuron_llm.compile.plan.plan import CompilePlan, plan_compile
from neuron_llm.compile.planned_model import PlannedModel
from neuron_llm.errors import ArtifactError
from neuron_llm.quantities import DTYPE_BYTES
from neuron_llm.scheduler.buckets import Bucket


@dataclass(frozen=True)
class ReportSubject:
    """What is reported on.

    Attributes:
        path: the configuration file, or the artifact's directory.
        config: what the file says, or said when the artifact was compiled.
        plan: its limits and graphs; those of the artifact if there is one.
        tokenizer_dir: where the model's tokenizer lies; None where it has no files of its own.
        artifact_id: of the artifact; None for a configuration.
        compile_seconds: what building each graph took, of those whose time is on record.
    """

    path: Path
    config: Config
    plan: CompilePlan
    tokenizer_dir: Path | None
    artifact_id: str | None
    compile_seconds: Mapping[Bucket, float]


def subject_of_config(planned: PlannedModel, artifacts_dir: Path) -> ReportSubject:
    """Return the graphs that a configuration would be compiled to.

    Args:
        planned: the configuration and its plan.
        artifacts_dir: where artifacts of the same model may say how long graphs took to build.
    """
    loaded, plan = planned.loaded, planned.plan
    assert loaded.model_path is not None, "the model is on this machine"
    return ReportSubject(
        path=loaded.path,
        config=loaded.config,
        plan=plan,
        tokenizer_dir=loaded.model_path if loaded.model_path.is_dir() else None,
        artifact_id=None,
        compile_seconds=_recorded_nearby(plan, artifacts_dir),
    )


def subject_of_artifact(directory: Path, manifest: Manifest) -> ReportSubject:
    """Return the graphs of an artifact.

    Raises:
        NeuronLLMError: its model's `config.json` is not there, or says nothing usable.
        ArtifactError: this version would plan other graphs from the configuration it was made of.
    """
    size = manifest.weights.file.size_bytes // DTYPE_BYTES[manifest.settings.dtype]
    spec = replace(
        spec_from_config(read_json(directory / "config.json"), None), num_parameters=size
    )
    config = Config.model_validate(manifest.config)
    loaded = LoadedConfig(
        config=config,
        path=directory,
        name=manifest.name,
        lines={},
        model_path=directory,
        model_spec=spec,
    )
    is_shared = MODEL_BUILDER in manifest.requirements.get("binding", ())
    plan = plan_compile(loaded, spec, auto_binding=MODEL_BUILDER if is_shared else "trace")
    if plan.buckets != manifest.buckets or plan.num_blocks != manifest.settings.num_blocks:
        raise ArtifactError(
            f"version {manifest.neuron_llm_version} compiled other graphs into `{directory}` than"
            " this version would from the same configuration",
            hint="compile it again: `neuron-llm compile CONFIG`",
        )
    return ReportSubject(
        path=directory,
        config=config,
        plan=plan,
        tokenizer_dir=directory / TOKENIZER_DIR,
        artifact_id=manifest.artifact_id,
        compile_seconds={graph.bucket: graph.compile_seconds for graph in manifest.graphs},
    )


def _recorded_nearby(plan: CompilePlan, artifacts_dir: Path) -> dict[Bucket, float]:
    """Return what graphs of artifacts of the same model, dtype and backend took to build."""
    recorded: dict[Bucket, float] = {}
    for path in sorted(artifacts_dir.glob("*/manifest.json")):
        try:
            manifest = read_manifest(path.parent)
        except ArtifactError:  # A damaged one says nothing, and is not what the report is about.
            continue
        if _is_alike(manifest, plan):
            recorded.update({graph.bucket: graph.compile_seconds for graph in manifest.graphs})
    return recorded


def _is_alike(manifest: Manifest, plan: CompilePlan) -> bool:
    sizes = ("model_type", "num_layers", "num_kv_heads", "head_dim", "vocab_size")
    return (
        manifest.backend == plan.backend
        and manifest.settings.dtype == plan.dtype
        and all(getattr(manifest.model, name) == getattr(plan.model, name) for name in sizes)
    )
