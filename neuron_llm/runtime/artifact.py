"""An artifact as the runtime sees it: checked, and ready to load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neuron_llm.backends.inputs import input_shapes
from neuron_llm.backends.protocol import (
    ConstantSpec,
    GraphFiles,
    KVCacheShape,
    LoadJob,
    Session,
    get_backend,
)
from neuron_llm.compile.manifest import (
    TOKENIZER_DIR,
    GraphEntry,
    Manifest,
    artifact_path,
    check_content,
    read_manifest,
)
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler import SchedulerConfig


@dataclass(frozen=True)
class Artifact:
    """A directory that `compile` wrote, whose manifest, versions, CPU and graphs have been checked.

    Attributes:
        directory: where it lies.
        manifest: its index.
    """

    directory: Path
    manifest: Manifest

    @classmethod
    def open(cls, directory: Path) -> Artifact:
        """Check everything that can be checked without loading a graph.

        Raises:
            ArtifactError: not an artifact, damaged, incomplete, or made for another machine or
                other versions.
        """
        manifest = read_manifest(directory)
        backend = get_backend(manifest.backend)
        reasons = backend.diagnose(manifest.backend_versions, manifest.requirements)
        if reasons:
            raise ArtifactError(
                f"`{directory}` cannot run here: {'; '.join(reasons)}",
                hint="compile it on this machine: `neuron-llm compile CONFIG`",
            )
        for graph in manifest.graphs:
            _check_graph(directory, manifest, graph)
        return cls(directory, manifest)

    @property
    def tokenizer_dir(self) -> Path:
        """Where the tokenizer's files lie."""
        return self.directory / TOKENIZER_DIR

    def load(self) -> Session:
        """Load every graph and the weights, and allocate the KV cache."""
        manifest = self.manifest
        settings, model = manifest.settings, manifest.model
        return get_backend(manifest.backend).load(
            LoadJob(
                graphs=tuple(self._graph_files(graph) for graph in manifest.graphs),
                weights=artifact_path(self.directory, manifest.weights.file.path),
                weight_aliases=manifest.weights.aliases,
                kv_cache=KVCacheShape(
                    num_layers=model.num_layers,
                    num_blocks=settings.num_blocks,
                    block_size=settings.block_size,
                    num_kv_heads=model.num_kv_heads,
                    head_dim=model.head_dim,
                ),
                dtype=settings.dtype,
            )
        )

    def scheduler_config(self) -> SchedulerConfig:
        """Return the scheduler's limits; its prefill buckets are the graphs that exist.

        Raises:
            ConfigError: the graphs do not hold what the limits allow.
        """
        settings = self.manifest.settings
        return SchedulerConfig(
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_model_len=settings.max_model_len,
            block_size=settings.block_size,
            num_blocks=settings.num_blocks,
            num_batched_tokens_buckets=tuple(self.manifest.buckets.num_batched_tokens_buckets),
            enable_prefix_caching=settings.enable_prefix_caching,
            kv_admission=settings.kv_admission,
            max_consecutive_prefills=settings.max_consecutive_prefills,
        )

    def _graph_files(self, graph: GraphEntry) -> GraphFiles:
        return GraphFiles(
            bucket=graph.bucket,
            directory=artifact_path(self.directory, graph.directory),
            constants=tuple(
                ConstantSpec(c.name, c.weight, c.shape, c.dtype) for c in graph.constants
            ),
        )


def _check_graph(directory: Path, manifest: Manifest, graph: GraphEntry) -> None:
    """Compare a graph's files with their checksums, and its shapes with what the runner builds."""
    for entry in graph.files:
        check_content(directory, entry, what=f"graph `{graph.name}`")
    settings = manifest.settings
    expected = input_shapes(
        graph.bucket, max_model_len=settings.max_model_len, block_size=settings.block_size
    )
    compiled = {tensor.name: tensor.shape for tensor in graph.inputs}
    if compiled != expected:
        raise ArtifactError(
            f"graph `{graph.name}` was compiled for the shapes {compiled}, but its bucket needs "
            f"{expected}",
            hint="compile it again: `neuron-llm compile CONFIG`",
        )
