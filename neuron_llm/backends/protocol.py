"""What a backend promises: to compile the graphs of a plan, and to load and run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec, TensorSpec
from neuron_llm.scheduler.buckets import Bucket

if TYPE_CHECKING:
    import torch

    from neuron_llm.backends.graph.inputs import GraphInputs


@dataclass(frozen=True)
class BuiltGraph:
    """A graph in the compile cache.

    Attributes:
        directory: holds the compiled files, read-only from here on.
        graph_key: content address of the exported graph.
        constants: weights and buffers that the graph reads.
        inputs: index tensors, in order; the KV caches follow them.
        compile_seconds: what building it took, whenever that was.
    """

    directory: Path
    graph_key: str
    constants: tuple[ConstantSpec, ...]
    inputs: tuple[TensorSpec, ...]
    compile_seconds: float


BuildStatus = Literal[
    "cached", "started", "built", "failed", "retried", "joining", "joined", "verified"
]
"""What has become of a graph; all graphs together are `joining`, where a backend joins them."""


@dataclass(frozen=True)
class BuildEvent:
    """Progress of one graph, told to whoever renders it."""

    graph: str
    status: BuildStatus
    seconds: float = 0.0


BuildListener = Callable[[BuildEvent], None]


@dataclass(frozen=True)
class BuildRequest:
    """One call of `Backend.compile_graphs`.

    Attributes:
        specs: the graphs to have, in plan order.
        cache_dir: root of the content-addressed cache.
        num_jobs: processes that build at the same time.
        on_event: called from the calling thread for every `BuildEvent`.
        timeout_s: seconds after which building one graph is given up; None for no limit.
    """

    specs: tuple[GraphSpec, ...]
    cache_dir: Path
    num_jobs: int
    on_event: BuildListener
    timeout_s: float | None = None


@dataclass(frozen=True)
class KVCacheShape:
    """The KV cache: per layer K and V `[num_blocks, block_size, num_kv_heads, head_dim]`."""

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class GraphFiles:
    """One graph of an artifact, as a session loads it."""

    bucket: Bucket
    directory: Path
    constants: tuple[ConstantSpec, ...]


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """One call of `Backend.load`: files that have been checked against the manifest.

    Attributes:
        graphs: every graph.
        weights: the one safetensors file that all graphs share.
        weight_aliases: tied weights, other name to stored name.
        shared_files: what all graphs need besides themselves, see `Backend.shared_files`.
        kv_cache: shape of the KV cache.
        vocab_size: width of the logits.
        dtype: of the KV cache and the logits.
        requirements: what `Backend.requirements` said when the graphs were compiled.
    """

    graphs: tuple[GraphFiles, ...]
    weights: Path
    weight_aliases: Mapping[str, str]
    shared_files: tuple[Path, ...]
    kv_cache: KVCacheShape
    vocab_size: int
    dtype: str
    requirements: Mapping[str, Sequence[str]]


class Session(Protocol):
    """Loaded graphs over one set of weights and one KV cache."""

    @property
    def key_caches(self) -> list[torch.Tensor]:
        """K of every layer on the host, to be read and written between steps."""
        ...

    @property
    def value_caches(self) -> list[torch.Tensor]:
        """V of every layer, likewise."""
        ...

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run the bucket's graph; it updates the KV cache.

        Returns:
            logits `[num_seqs, vocab_size]`, or the most likely token of each row, `[num_seqs]`
            int32, where graphs sample: one artifact's graphs all give the same. Rows past the real
            ones mean nothing, and the next call may overwrite all of them.
        """
        ...


class Backend(Protocol):
    """Both halves of a backend.

    Attributes:
        name: as the configuration says it.
        graph_file: name of the file that every compiled graph has.
    """

    name: str
    graph_file: str

    def cached_graphs(self, specs: Sequence[GraphSpec], cache_dir: Path) -> list[bool]:
        """Return for each spec whether its graph is in the cache. Exports and builds nothing."""
        ...

    def compile_graphs(self, request: BuildRequest) -> list[BuiltGraph]:
        """Return the graphs of a request in order, from the cache or newly built.

        Raises:
            CompileError: graphs failed; the others are in the cache.
        """
        ...

    def shared_files(self, request: BuildRequest, built: Sequence[BuiltGraph]) -> list[Path]:
        """Return what the graphs need at run time besides themselves, such as a library.

        A file's name stands for its content: two that differ have two names.

        Args:
            request: that `compile_graphs` was given.
            built: what it returned.

        Raises:
            CompileError: it could not be built.
        """
        ...

    def lay_out(self, constant: ConstantSpec, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return a constant as the artifact stores it, from the weights that it is made of."""
        ...

    def load(self, request: LoadRequest) -> Session:
        """Load graphs and weights and allocate the KV cache. Needs no compiler.

        Raises:
            ArtifactError: a weight is missing or has another shape or dtype than a graph needs.
        """
        ...

    def versions(self) -> dict[str, str]:
        """Return the versions that a compiled graph depends on at run time."""
        ...

    def requirements(self) -> dict[str, list[str]]:
        """Return what a graph compiled here needs of the machine that runs it."""
        ...

    def diagnose(
        self, versions: Mapping[str, str], requirements: Mapping[str, Sequence[str]]
    ) -> list[str]:
        """Return every reason why graphs of those versions and requirements cannot run here."""
        ...
