"""What an artifact is, in one document; read from its manifest alone. Knows no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuron_llm.artifact.manifest import GraphEntry, Manifest


def artifact_summary(directory: Path, manifest: Manifest) -> dict[str, Any]:
    """Return everything that a manifest says and people ask about, as JSON values."""
    return {
        "schema_version": 1,
        "artifact": str(directory),
        "artifact_id": manifest.artifact_id,
        "name": manifest.name,
        "neuron_llm_version": manifest.neuron_llm_version,
        "backend": manifest.backend,
        "backend_versions": manifest.backend_versions,
        "requirements": manifest.requirements,
        "model": {"source": manifest.config.get("model"), **manifest.model.model_dump()},
        "settings": manifest.settings.model_dump(),
        "graphs": [_graph_summary(graph) for graph in manifest.graphs],
        "weights_bytes": manifest.weights.file.size_bytes,
        "num_tied_weights": len(manifest.weights.aliases),
        "total_bytes": sum(entry.size_bytes for entry in manifest.all_files()),
        "is_verified": is_verified(manifest),
        "num_golden_tokens": len(manifest.golden.tokens) if manifest.golden else 0,
        "config": manifest.config,
    }


def is_verified(manifest: Manifest) -> bool:
    """Whether every graph was compared with the eager model."""
    return all(graph.verification is not None for graph in manifest.graphs)


def _graph_summary(graph: GraphEntry) -> dict[str, Any]:
    bucket = {
        name: value
        for name in ("num_tokens", "batch_size", "max_context_tokens")
        if (value := getattr(graph, name)) is not None
    }
    verdict = graph.verification
    return {
        "graph": graph.name,
        **bucket,
        "inputs": {tensor.name: list(tensor.shape) for tensor in graph.inputs},
        "graph_key": graph.graph_key,
        "size_bytes": sum(entry.size_bytes for entry in graph.files),
        "compile_s": graph.compile_seconds,
        "is_verified": verdict is not None,
        "verification": verdict.model_dump() if verdict is not None else None,
    }
