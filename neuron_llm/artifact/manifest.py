"""The manifest: what an artifact is, what it needs and what its files must be. Knows no torch.

`compile` writes it, everything that uses an artifact reads it first. Paths in it are checked before
any is opened: relative, below the artifact, through no symbolic link that leaves it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from neuron_llm.artifact.manifest_entries import (
    GRAPHS_DIR,
    NO_CHECKSUM,
    ConstantEntry,
    Entry,
    FileEntry,
    GoldenEntry,
    GraphEntry,
    ModelEntry,
    RuntimeSettings,
    TensorEntry,
    VerificationEntry,
    WeightsEntry,
    sealed,
)
from neuron_llm.backends.build.cache import content_key
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler.buckets import BucketSet, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.policy.coverage import (
    check_coverage,
    min_blocks_per_request,
    reachable_shapes,
)

__all__ = [
    "GRAPHS_DIR",
    "MANIFEST_FILE",
    "SCHEMA_VERSION",
    "SHARED_DIR",
    "TOKENIZER_DIR",
    "WEIGHTS_FILE",
    "ConstantEntry",
    "FileEntry",
    "GoldenEntry",
    "GraphEntry",
    "Manifest",
    "ModelEntry",
    "RuntimeSettings",
    "TensorEntry",
    "VerificationEntry",
    "WeightsEntry",
    "artifact_path",
    "check_content",
    "describe_file",
    "file_sha256",
    "manifest_id",
    "parse_manifest",
    "read_manifest",
]

SCHEMA_VERSION = 2
MANIFEST_FILE = "manifest.json"
SHARED_DIR = "shared"
WEIGHTS_FILE = "weights.safetensors"
TOKENIZER_DIR = "tokenizer"
_NO_IDENTITY = ("artifact_id", "golden", "checksum")
_OF_THE_BUILD = ("compile_seconds", "verification")
_COMPILE_AGAIN = "compile it again: `neuron-llm compile CONFIG`"


class Manifest(Entry):
    """The index of an artifact."""

    schema_version: Literal[2] = 2
    artifact_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    name: str
    neuron_llm_version: str
    backend: str
    backend_versions: dict[str, str]
    requirements: dict[str, list[str]]
    config: dict[str, Any]
    settings: RuntimeSettings
    model: ModelEntry
    graphs: tuple[GraphEntry, ...] = Field(min_length=1)
    shared_files: tuple[FileEntry, ...]
    weights: WeightsEntry
    files: tuple[FileEntry, ...]
    golden: GoldenEntry | None = None
    checksum: str = Field(default=NO_CHECKSUM, pattern=r"^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if len({graph.name for graph in self.graphs}) < len(self.graphs):
            raise ValueError("two graphs have one name")
        return self

    def identified(self) -> Self:
        """Return the manifest with the `artifact_id` of its content."""
        return self.model_copy(update={"artifact_id": manifest_id(self.model_dump(mode="json"))})

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
        yield from self.shared_files
        for graph in self.graphs:
            yield from graph.files

    def write(self, directory: Path) -> None:
        """Write the manifest into an artifact's directory."""
        unsealed = self.model_copy(update={"checksum": NO_CHECKSUM}).model_dump(mode="json")
        text = json.dumps(unsealed, indent=1, ensure_ascii=False) + "\n"
        (directory / MANIFEST_FILE).write_bytes(sealed(text.encode()))


def manifest_id(content: Mapping[str, Any]) -> str:
    """Return the `artifact_id` of a manifest's JSON content, 16 hex digits.

    The content counts, save for what another build of the same graphs may change: how long it took,
    the bytes it wrote, whether it was verified. `graph_key`, and the name of a shared file, stand
    for the bytes.
    """
    identity = {name: value for name, value in content.items() if name not in _NO_IDENTITY}
    identity["graphs"] = [
        {
            **{name: value for name, value in graph.items() if name not in _OF_THE_BUILD},
            "files": [file["path"] for file in graph["files"]],
        }
        for graph in content["graphs"]
    ]
    identity["shared_files"] = [file["path"] for file in content["shared_files"]]
    return content_key(identity)[:16]


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of an artifact, and its files.

    Every file must be there with its size. The tokenizer's and the model's configuration, which are
    small, are compared with their checksums here; graphs and weights are when they are loaded.

    Raises:
        ArtifactError: no artifact, one of another schema, one that was changed or damaged, or a
            shape that the scheduler can emit without a graph.
    """
    manifest = parse_manifest(directory)
    for entry in manifest.all_files():
        _check_size(directory, entry)
    for entry in manifest.files:
        check_content(directory, entry, what="the artifact")
    _check_coverage(directory / MANIFEST_FILE, manifest)
    return manifest


def parse_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of an artifact, and look at none of its files.

    Raises:
        ArtifactError: no artifact, one of another schema, or one that was changed or damaged.
    """
    path = directory / MANIFEST_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(
            f"`{directory}` is no artifact: it has no `{MANIFEST_FILE}`",
            hint="name a directory that `neuron-llm compile` wrote",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
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
    if manifest_id(content) != manifest.artifact_id:
        raise ArtifactError(
            f"`{path}` was changed after compiling: its content does not have the id "
            f"`{manifest.artifact_id}`",
            hint=_COMPILE_AGAIN,
        )
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
