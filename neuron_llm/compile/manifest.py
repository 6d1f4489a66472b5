"""The manifest: what an artifact is, what it needs and what its files must be. Knows no torch.

`compile` writes it, everything that uses an artifact reads it first. Paths in it are checked before
any is opened: relative, below the artifact, through no symbolic link that leaves it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from neuron_llm.compile.coverage import (
    check_coverage,
    min_blocks_per_request,
    reachable_shapes,
)
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler.buckets import Bucket, BucketSet, DecodeBucket, PrefillBucket

SCHEMA_VERSION = 1
MANIFEST_FILE = "manifest.json"
WEIGHTS_FILE = "weights.safetensors"
TOKENIZER_DIR = "tokenizer"
GRAPHS_DIR = "graphs"
_COMPILE_AGAIN = "compile it again: `neuron-llm compile CONFIG`"


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Entry):
    """One file: its path below the artifact, its content and its size."""

    path: str
    sha256: str
    size_bytes: int


class TensorEntry(_Entry):
    """An index tensor of a graph."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class ConstantEntry(_Entry):
    """A weight that a graph reads: the graph's name for it, and its name in the weights."""

    name: str
    weight: str
    shape: tuple[int, ...]
    dtype: str


class GraphEntry(_Entry):
    """One graph: its bucket, its tensors, its files, and what building it took."""

    name: str
    num_tokens: int | None = None
    batch_size: int | None = None
    max_context_tokens: int | None = None
    inputs: tuple[TensorEntry, ...]
    constants: tuple[ConstantEntry, ...]
    files: tuple[FileEntry, ...]
    graph_key: str
    compile_seconds: float

    @property
    def bucket(self) -> Bucket:
        """The bucket that the graph was compiled for."""
        if self.num_tokens is not None:
            return PrefillBucket(self.num_tokens)
        assert self.batch_size is not None and self.max_context_tokens is not None
        return DecodeBucket(self.batch_size, self.max_context_tokens)

    @property
    def directory(self) -> str:
        """The graph's folder below the artifact."""
        return f"{GRAPHS_DIR}/{self.name}"


class RuntimeSettings(_Entry):
    """What the scheduler and the runner need to know; resolved, nothing is left to defaults."""

    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    enable_prefix_caching: bool
    async_scheduling: bool
    kv_admission: Literal["reserve", "max_model_len"]
    max_consecutive_prefills: int | None


class ModelEntry(_Entry):
    """The model's sizes, as far as running it needs them."""

    model_type: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    revision: str | None = None


class WeightsEntry(_Entry):
    """The one weights file, and the tied names that it stores once."""

    file: FileEntry
    aliases: dict[str, str]


class Manifest(_Entry):
    """The index of an artifact."""

    schema_version: Literal[1] = 1
    artifact_id: str
    name: str
    neuron_llm_version: str
    backend: str
    backend_versions: dict[str, str]
    requirements: dict[str, list[str]]
    config: dict[str, Any]
    settings: RuntimeSettings
    model: ModelEntry
    graphs: tuple[GraphEntry, ...] = Field(min_length=1)
    weights: WeightsEntry
    files: tuple[FileEntry, ...]

    @property
    def buckets(self) -> BucketSet:
        """The buckets that graphs exist for."""
        buckets = [graph.bucket for graph in self.graphs]
        return BucketSet(
            prefill=tuple(sorted(b for b in buckets if isinstance(b, PrefillBucket))),
            decode=tuple(sorted(b for b in buckets if isinstance(b, DecodeBucket))),
        )

    def all_files(self) -> Iterable[FileEntry]:
        """Every file of the artifact but the manifest itself."""
        yield self.weights.file
        yield from self.files
        for graph in self.graphs:
            yield from graph.files

    def write(self, directory: Path) -> None:
        """Write the manifest into an artifact's directory."""
        text = json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False)
        (directory / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of an artifact, and the presence and size of every file.

    Raises:
        ArtifactError: no artifact, one of another schema, a file missing or of another size, or a
            shape that the scheduler can emit without a graph.
    """
    path = directory / MANIFEST_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(
            f"`{directory}` is no artifact: it has no `{MANIFEST_FILE}`",
            hint="name a directory that `neuron-llm compile` wrote",
        ) from error
    except (OSError, ValueError) as error:
        raise ArtifactError(f"`{path}` cannot be read: {error}", hint=_COMPILE_AGAIN) from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise ArtifactError(
            f"`{path}` has schema version `{version}`; this version reads `{SCHEMA_VERSION}`",
            hint=_COMPILE_AGAIN,
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ArtifactError(
            f"`{path}` is damaged at `{where}`: {first['msg']}", hint=_COMPILE_AGAIN
        ) from error
    for entry in manifest.all_files():
        _check_size(directory, entry)
    _check_coverage(path, manifest)
    return manifest


def artifact_path(directory: Path, relative: str) -> Path:
    """Return a manifest's path below its artifact.

    Raises:
        ArtifactError: the path is absolute or leads out of the artifact.
    """
    parts = PurePosixPath(relative)
    path = directory / relative
    is_inside = not parts.is_absolute() and ".." not in parts.parts
    if not is_inside or not path.resolve().is_relative_to(directory.resolve()):
        raise ArtifactError(f"the manifest names `{relative}`, which lies outside the artifact")
    return path


def describe_file(directory: Path, path: Path) -> FileEntry:
    """Return the manifest entry of a file that lies below `directory`."""
    return FileEntry(
        path=path.relative_to(directory).as_posix(),
        sha256=file_sha256(path),
        size_bytes=path.stat().st_size,
    )


def check_content(directory: Path, entry: FileEntry, *, what: str) -> None:
    """Compare a file with its recorded sha256.

    Raises:
        ArtifactError: the content differs; `what` says whose file it is.
    """
    if file_sha256(artifact_path(directory, entry.path)) != entry.sha256:
        raise ArtifactError(
            f"{what} is damaged: the checksum of `{entry.path}` differs from the manifest's",
            hint=_COMPILE_AGAIN,
        )


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_coverage(path: Path, manifest: Manifest) -> None:
    settings = manifest.settings
    shapes = reachable_shapes(
        max_model_len=settings.max_model_len,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        num_usable_blocks=settings.num_blocks - 1,
        blocks_per_request=min_blocks_per_request(
            settings.kv_admission, settings.max_model_len, settings.block_size
        ),
    )
    uncovered = check_coverage(manifest.buckets, shapes)
    if uncovered:
        raise ArtifactError(f"`{path}` lacks graphs: {uncovered[0]}", hint=_COMPILE_AGAIN)


def _check_size(directory: Path, entry: FileEntry) -> None:
    path = artifact_path(directory, entry.path)
    if not path.is_file():
        raise ArtifactError(f"`{directory}` lacks the file `{entry.path}`", hint=_COMPILE_AGAIN)
    size = path.stat().st_size
    if size != entry.size_bytes:
        raise ArtifactError(
            f"`{entry.path}` in `{directory}` has {size} bytes; the manifest says "
            f"{entry.size_bytes}",
            hint=_COMPILE_AGAIN,
        )
