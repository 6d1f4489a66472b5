"""An artifact as the runtime sees it: checked, and ready to load."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.artifact.golden import GoldenTest
from neuron_llm.artifact.held_memory import check_memory
from neuron_llm.artifact.load_request import constant_specs, load_request
from neuron_llm.artifact.machine_memory import read_memory
from neuron_llm.artifact.manifest import (
    TOKENIZER_DIR,
    GraphEntry,
    Manifest,
    artifact_path,
    check_content,
    read_manifest,
)
from neuron_llm.backends.build.files import DESCRIPTION_FILE, read_built_graph
from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import TensorSpec
from neuron_llm.backends.protocol import Session
from neuron_llm.backends.registry import get_backend
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler import BucketSet, SchedulerConfig

_COMPILE_AGAIN = "compile it again: `neuron-llm compile CONFIG`"


@dataclass(frozen=True)
class Artifact:
    """A directory that `compile` wrote: its manifest, versions, CPU, graphs and memory are checked.

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
            ArtifactError: not an artifact, damaged, incomplete, made for another machine or other
                versions, or there is not the memory for its weights and KV cache.
        """
        manifest = read_manifest(directory)
        backend = get_backend(manifest.backend)
        reasons = backend.diagnose(manifest.backend_versions, manifest.requirements)
        if reasons:
            raise ArtifactError(
                f"`{directory}` cannot run here: {'; '.join(reasons)}",
                hint="compile it on this machine: `neuron-llm compile CONFIG`",
            )
        for entry in manifest.shared_files:
            check_content(directory, entry, what="the file that all graphs share")
        for graph in manifest.graphs:
            _check_graph(directory, manifest, graph, backend.graph_file)
        # Here and not on loading: an engine makes its scheduler first, which grows with the blocks.
        check_memory(manifest, read_memory().available_bytes)
        return cls(directory, manifest)

    @property
    def tokenizer_dir(self) -> Path:
        """Where the tokenizer's files lie."""
        return self.directory / TOKENIZER_DIR

    def load(self, *, self_test: bool = True) -> Session:
        """Load every graph and the weights, and allocate the KV cache.

        Args:
            self_test: run the golden tokens that the artifact was shipped with.

        Raises:
            ArtifactError: the weights are damaged, or are not those that the graphs need, or the
                self-test gives other tokens.
        """
        session = self._load()
        if self_test:
            GoldenTest(session, self.manifest).check()
        return session

    def _load(self) -> Session:
        backend, weights = get_backend(self.manifest.backend), self.manifest.weights.file
        # Hashing lets go of the interpreter, so that a start does not wait for it.
        with ThreadPoolExecutor(max_workers=1) as pool:
            checked = pool.submit(check_content, self.directory, weights, what="the artifact")
            try:
                return backend.load(load_request(self.directory, self.manifest))
            finally:
                # Its word goes first: loading damaged weights may fail in any way, or in none.
                checked.result()

    def buckets(self, *, reproducible: bool = False) -> BucketSet:
        """Return the buckets whose graphs are run: all, or the largest of each phase."""
        buckets = self.manifest.buckets
        return buckets.largest if reproducible else buckets

    def scheduler_config(self, *, reproducible: bool = False) -> SchedulerConfig:
        """Return the scheduler's limits; its prefill buckets are the graphs that are run.

        Args:
            reproducible: see `EngineOptions`.

        Raises:
            ConfigError: the graphs do not hold what the limits allow.
        """
        buckets = self.buckets(reproducible=reproducible)
        return SchedulerConfig.of(self.manifest.settings, buckets.num_batched_tokens_buckets)


def _check_graph(directory: Path, manifest: Manifest, graph: GraphEntry, graph_file: str) -> None:
    """Compare a graph's files with their checksums, and its shapes with what the runner builds."""
    for entry in graph.files:
        check_content(directory, entry, what=f"graph `{graph.name}`")
    _check_description(directory, graph, graph_file)
    settings = manifest.settings
    expected = input_shapes(
        graph.bucket, max_model_len=settings.max_model_len, block_size=settings.block_size
    )
    compiled = {tensor.name: tensor.shape for tensor in graph.inputs}
    if compiled != expected:
        raise ArtifactError(
            f"graph `{graph.name}` was compiled for the shapes {compiled}, but its bucket needs "
            f"{expected}",
            hint=_COMPILE_AGAIN,
        )


def _check_description(directory: Path, graph: GraphEntry, graph_file: str) -> None:
    """Compare what the manifest says about a graph with what was written beside it when built."""
    checked = {entry.path for entry in graph.files}
    for name in (graph_file, DESCRIPTION_FILE):
        if f"{graph.directory}/{name}" not in checked:
            raise ArtifactError(
                f"the manifest has no checksum of `{graph.directory}/{name}`", hint=_COMPILE_AGAIN
            )
    built = read_built_graph(artifact_path(directory, graph.directory))
    inputs = tuple(TensorSpec(i.name, i.shape, i.dtype) for i in graph.inputs)
    if (built.inputs, built.constants) != (inputs, constant_specs(graph)):
        raise ArtifactError(
            f"the manifest describes graph `{graph.name}` otherwise than its `{DESCRIPTION_FILE}`",
            hint=_COMPILE_AGAIN,
        )
