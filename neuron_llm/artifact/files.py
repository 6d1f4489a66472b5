"""Every byte of an artifact against its checksum. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.artifact.manifest import (
    MANIFEST_FILE,
    FileEntry,
    artifact_path,
    file_sha256,
    parse_manifest,
    read_manifest,
)
from neuron_llm.artifact.manifest_entries import is_sealed
from neuron_llm.errors import ArtifactError

FileListener = Callable[[str], None]


@dataclass(frozen=True)
class Damage:
    """A file that is not what was compiled: its path below the artifact, and what is wrong."""

    path: str
    reason: str


@dataclass(frozen=True)
class CheckedFiles:
    """What looking at every byte found.

    Attributes:
        num_files: that were looked at, the manifest included.
        num_bytes: that they should have, the manifest's not counted.
        damages: one for each damaged file.
        unlisted: files that the manifest does not name; nothing reads them.
    """

    num_files: int
    num_bytes: int
    damages: tuple[Damage, ...]
    unlisted: tuple[str, ...]


def check_files(directory: Path, on_file: FileListener = lambda path: None) -> CheckedFiles:
    """Compare every file of an artifact with its checksum.

    Args:
        directory: the artifact.
        on_file: told the path of each file before it is read.

    Raises:
        ArtifactError: it is no artifact, or of another version.
    """
    damages = []
    try:
        manifest = parse_manifest(directory)
    except ArtifactError as error:
        if not (directory / MANIFEST_FILE).is_file():
            raise
        # Without it nothing is known about the other files.
        damage = Damage(MANIFEST_FILE, error.message)
        return CheckedFiles(1, 0, (damage,), ())
    if not is_sealed((directory / MANIFEST_FILE).read_bytes()):
        damages.append(Damage(MANIFEST_FILE, "its text does not have the checksum at its end"))
    files = list(manifest.all_files())
    for entry in files:
        on_file(entry.path)
        reason = _fault(directory, entry)
        if reason is not None:
            damages.append(Damage(entry.path, reason))
    if not damages:
        # What the files say together: whether every shape has a graph.
        read_manifest(directory)
    return CheckedFiles(
        num_files=len(files) + 1,
        num_bytes=sum(entry.size_bytes for entry in files),
        damages=tuple(damages),
        unlisted=tuple(_unlisted(directory, {MANIFEST_FILE, *(entry.path for entry in files)})),
    )


def _fault(directory: Path, entry: FileEntry) -> str | None:
    try:
        path = artifact_path(directory, entry.path)
        if not path.is_file():
            return "missing"
        size = path.stat().st_size
        if size != entry.size_bytes:
            return f"{size} bytes; the manifest says {entry.size_bytes}"
        if file_sha256(path) != entry.sha256:
            return "its checksum differs from the manifest's"
    except ArtifactError as error:
        return error.message
    except OSError as error:
        return f"cannot be read: {(error.strerror or str(error)).lower()}"
    return None


def _unlisted(directory: Path, listed: set[str]) -> list[str]:
    paths = (path for path in directory.rglob("*") if not path.is_dir())
    names = (path.relative_to(directory).as_posix() for path in paths)
    return sorted(name for name in names if name not in listed)
