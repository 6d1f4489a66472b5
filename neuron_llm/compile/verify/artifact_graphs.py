"""Verify the graphs of an artifact that is being written, unless that has been done before."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from neuron_llm.artifact.load_request import load_request
from neuron_llm.artifact.manifest import Manifest, VerificationEntry, read_manifest
from neuron_llm.backends.protocol import BuildEvent, BuildListener, Session
from neuron_llm.backends.registry import get_backend
from neuron_llm.compile.verify.cases import Lengths
from neuron_llm.errors import ArtifactError

if TYPE_CHECKING:
    from neuron_llm.compile.verify.reference import Reference
    from neuron_llm.compile.verify.verification import Verifier


def with_verdicts(
    manifest: Manifest,
    directory: Path,
    checkpoint: Path,
    destination: Path,
    on_event: BuildListener,
) -> Manifest:
    """Return the manifest with a verdict for every graph, and with golden tokens.

    Both are taken from the artifact that this one replaces if it is the same.

    Args:
        manifest: of the artifact.
        directory: where its files lie.
        checkpoint: the Hugging Face directory that it is held to.
        destination: the place of the artifact, where an earlier one may lie.
        on_event: told about every graph.

    Raises:
        CompileError: a graph does not compute what the model does.
    """
    earlier = _earlier(manifest, destination)
    verdicts = {g.graph_key: g.verification for g in earlier.graphs} if earlier else {}
    golden = earlier.golden if earlier else None
    pending = [graph for graph in manifest.graphs if verdicts.get(graph.graph_key) is None]
    if pending or golden is None:
        from neuron_llm.artifact.golden import GoldenTest

        session = get_backend(manifest.backend).load(load_request(directory, manifest))
        reference = _reference(manifest, checkpoint)
        verifier = _verifier(session, manifest, reference)
        for graph in pending:
            started = time.perf_counter()
            verdict = asdict(verifier.verify(graph.bucket))
            verdicts[graph.graph_key] = VerificationEntry(**verdict, tolerance=verifier.tolerance)
            on_event(BuildEvent(graph.name, "verified", time.perf_counter() - started))
        golden = GoldenTest(session, manifest).record(
            lambda token_ids, positions: reference.run(token_ids, positions).logits
        )
    graphs = [g.model_copy(update={"verification": verdicts[g.graph_key]}) for g in manifest.graphs]
    return manifest.model_copy(update={"graphs": tuple(graphs), "golden": golden})


def _reference(manifest: Manifest, checkpoint: Path) -> Reference:
    from neuron_llm.backends.graph.inputs import torch_dtype
    from neuron_llm.compile.verify.reference import Reference

    dtype = torch_dtype(manifest.settings.dtype)
    return Reference(checkpoint, dtype, max_model_len=manifest.settings.max_model_len)


def _verifier(session: Session, manifest: Manifest, reference: Reference) -> Verifier:
    from neuron_llm.compile.verify.verification import Verifier

    settings = manifest.settings
    return Verifier(
        session,
        reference,
        manifest.buckets,
        Lengths(settings.max_model_len, settings.block_size, settings.num_blocks - 1),
        dtype=settings.dtype,
        samples_greedily=settings.samples_greedily,
    )


def _earlier(manifest: Manifest, destination: Path) -> Manifest | None:
    """Return the artifact that lies there, if it has the same weights, libraries and graphs."""
    try:
        earlier = read_manifest(destination)
    except ArtifactError:
        return None

    def content(of: Manifest) -> object:
        return of.artifact_id, of.weights.file.sha256, [f.sha256 for f in of.shared_files]

    return earlier if content(earlier) == content(manifest) else None
