"""From a manifest to what a backend loads. Knows no torch."""

from __future__ import annotations

from pathlib import Path

from neuron_llm.artifact.manifest import GraphEntry, Manifest, artifact_path
from neuron_llm.backends.graph.spec import ConstantSpec
from neuron_llm.backends.protocol import GraphFiles, KVCacheShape, LoadRequest


def load_request(directory: Path, manifest: Manifest) -> LoadRequest:
    """Return what `Backend.load` takes to load an artifact.

    Args:
        directory: the artifact.
        manifest: its index; the files have been checked against it.

    Raises:
        ArtifactError: the manifest names a path outside the artifact.
    """
    settings, model = manifest.settings, manifest.model
    return LoadRequest(
        graphs=tuple(
            GraphFiles(
                bucket=graph.bucket,
                directory=artifact_path(directory, graph.directory),
                constants=constant_specs(graph),
            )
            for graph in manifest.graphs
        ),
        weights=artifact_path(directory, manifest.weights.file.path),
        weight_aliases=manifest.weights.aliases,
        shared_files=tuple(artifact_path(directory, file.path) for file in manifest.shared_files),
        kv_cache=KVCacheShape(
            num_layers=model.num_layers,
            num_blocks=settings.num_blocks,
            block_size=settings.block_size,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
        ),
        vocab_size=model.vocab_size,
        dtype=settings.dtype,
        requirements=manifest.requirements,
    )


def constant_specs(graph: GraphEntry) -> tuple[ConstantSpec, ...]:
    """Return a graph's constants as its backend knows them."""
    return tuple(ConstantSpec(**constant.model_dump()) for constant in graph.constants)
