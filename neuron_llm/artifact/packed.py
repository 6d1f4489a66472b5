"""An artifact in one file: an uncompressed tar archive whose first member lists every checksum.

The archive follows from its list alone, byte for byte, so reading one is comparing it with what
packing would have written: there is no room for a link, a device, or a changed byte. Any `tar`
unpacks it, and `sha256sum -c SHA256SUMS` checks what that wrote. Knows no torch.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from neuron_llm.artifact.files import FileListener
from neuron_llm.artifact.manifest import (
    MANIFEST_FILE,
    FileEntry,
    artifact_path,
    describe_file,
    read_manifest,
)
from neuron_llm.artifact.manifest_entries import is_sealed
from neuron_llm.artifact.scratch import artifact_scratch
from neuron_llm.errors import ArtifactError
from neuron_llm.quantities import MIB

LIST_FILE = "SHA256SUMS"

_LINE = re.compile(r"([0-9a-f]{64})  ([^\x00\n]+)")
_BLOCK_BYTES = tarfile.BLOCKSIZE
_CHUNK_BYTES = MIB
# Far more than a list of any artifact's files.
_MAX_LIST_BYTES = 16 * MIB


@dataclass(frozen=True)
class PackedFiles:
    """What was packed or unpacked: how many files, and the size of all of them together."""

    num_files: int
    num_bytes: int


def pack_artifact(
    directory: Path, file: Path, *, force: bool, on_file: FileListener = lambda path: None
) -> PackedFiles:
    """Write an artifact into one file, which appears when it is whole.

    Args:
        directory: the artifact; every byte of it is compared with its checksum on the way.
        file: to write.
        force: replace the file if there is one.
        on_file: told the path of each file before it is read.

    Raises:
        ArtifactError: no artifact, a damaged one, or a file that is in the way, in the artifact or
            in no directory.
    """
    manifest = read_manifest(directory)
    if not is_sealed((directory / MANIFEST_FILE).read_bytes()):
        raise _damaged(directory, MANIFEST_FILE)
    if file.is_dir() or (os.path.lexists(file) and not force):
        hint = "name another file" if file.is_dir() else "replace it with `--force`"
        raise ArtifactError(f"`{file}` is in the way: it exists", hint=hint)
    if not file.parent.is_dir():
        raise ArtifactError(
            f"cannot write `{file}`: no such directory",
            hint="name a file in a directory that exists",
        )
    if file.parent.resolve().is_relative_to(directory.resolve()):
        raise ArtifactError(
            f"`{file}` lies in the artifact that is packed", hint="name a file beside it"
        )
    entries = [describe_file(directory, directory / MANIFEST_FILE), *manifest.all_files()]
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".pack-") as scratch:
        path = Path(scratch) / file.name
        with path.open("wb") as archive:
            _write_member(archive, LIST_FILE, _list_of(entries))
            for entry in entries:
                on_file(entry.path)
                _write_file(archive, directory, entry)
            archive.write(_end_of_archive(archive.tell()))
        os.replace(path, file)
    return PackedFiles(len(entries), sum(entry.size_bytes for entry in entries))


def unpack_artifact(
    file: Path, destination: Path, *, on_file: FileListener = lambda path: None
) -> PackedFiles:
    """Write the artifact of one file into a directory, which appears when it is whole.

    Args:
        file: what `pack_artifact` wrote.
        destination: to make, and the directories above it.
        on_file: told the path of each file before it is written.

    Raises:
        ArtifactError: no such file, one that is damaged, cut off or not what packing writes, or a
            destination that exists.
    """
    if os.path.lexists(destination):
        raise ArtifactError(
            f"`{destination}` is in the way: it exists", hint="name a directory that does not"
        )
    if not file.is_file():
        raise ArtifactError(
            f"no such file: `{file}`", hint="name a file that `neuron-llm artifact pack` wrote"
        )
    destination.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as archive, artifact_scratch(destination.parent) as scratch:
        directory = scratch / destination.name
        directory.mkdir()
        files = _Unpacking(archive, file).unpack(directory, on_file)
        _check_artifact(file, directory, files)
        os.rename(directory, destination)
    return PackedFiles(len(files), sum(entry.size_bytes for entry in files.values()))


def _list_of(entries: Iterable[FileEntry]) -> bytes:
    return "".join(f"{entry.sha256}  {entry.path}\n" for entry in entries).encode()


def _header(path: str, size_bytes: int) -> bytes:
    """Return what stands before a file in the archive: name and size, and always the same rest."""
    member = tarfile.TarInfo(path)
    member.size = size_bytes
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padding(size_bytes: int) -> bytes:
    return bytes(-size_bytes % _BLOCK_BYTES)


def _end_of_archive(position: int) -> bytes:
    """Two empty blocks, and as many more as fill the last record."""
    end = position + 2 * _BLOCK_BYTES
    return bytes(2 * _BLOCK_BYTES + -end % tarfile.RECORDSIZE)


def _write_member(archive: IO[bytes], path: str, content: bytes) -> None:
    archive.write(_header(path, len(content)) + content + _padding(len(content)))


def _write_file(archive: IO[bytes], directory: Path, entry: FileEntry) -> None:
    archive.write(_header(entry.path, entry.size_bytes))
    digest = hashlib.sha256()
    num_bytes = 0
    with artifact_path(directory, entry.path).open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            archive.write(chunk)
            num_bytes += len(chunk)
    if num_bytes != entry.size_bytes or digest.hexdigest() != entry.sha256:
        raise _damaged(directory, entry.path)
    archive.write(_padding(num_bytes))


class _Unpacking:
    """Reads an archive from its beginning to its end."""

    def __init__(self, archive: IO[bytes], file: Path) -> None:
        self._archive = archive
        self._file = file

    def unpack(self, directory: Path, on_file: FileListener) -> dict[str, FileEntry]:
        """Write every file below an empty directory; return them by path."""
        files = {}
        for path, sha256 in self._read_list().items():
            on_file(path)
            size_bytes = self._read_header(path)
            with self._create(directory, path) as output:
                found = self._copy(size_bytes, output)
            if found != sha256:
                raise self._fault(f"the checksum of `{path}` differs")
            files[path] = FileEntry(path=path, sha256=sha256, size_bytes=size_bytes)
        if self._archive.read(tarfile.RECORDSIZE + 1) != _end_of_archive(self._end_of_files):
            raise self._fault("it does not end where its last file does")
        return files

    def _read_list(self) -> dict[str, str]:
        size_bytes = self._read_header(LIST_FILE)
        if size_bytes > _MAX_LIST_BYTES:
            raise self._fault(f"its list of checksums has {size_bytes} bytes")
        text = self._read(size_bytes).decode(errors="surrogateescape")
        self._read_padding(size_bytes)
        checksums: dict[str, str] = {}
        for line in text.removesuffix("\n").split("\n"):
            match = _LINE.fullmatch(line)
            if match is None:
                raise self._fault(f"its `{LIST_FILE}` has a line that is no checksum and path")
            sha256, path = match.groups()
            self._check_path(path, checksums)
            checksums[path] = sha256
        return checksums

    def _check_path(self, path: str, earlier: Mapping[str, str]) -> None:
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or not parts.name or str(parts) != path:
            raise self._fault(f"`{path}` would lie outside the artifact")
        above = {str(parent) for parent in parts.parents}
        if path in earlier or path == LIST_FILE or above & earlier.keys():
            raise self._fault(f"`{path}` is there twice")

    def _read_header(self, path: str) -> int:
        """Read what stands before a file that must come next; return the file's size."""
        header = self._read(len(_header(path, 0)))
        try:
            size_bytes = tarfile.TarInfo.frombuf(
                header[-_BLOCK_BYTES:], "utf-8", "surrogateescape"
            ).size
            # A tar header can say a size below zero.
            is_as_packed = size_bytes >= 0 and header == _header(path, size_bytes)
        except (tarfile.TarError, ValueError, OverflowError):
            is_as_packed = False
        if not is_as_packed:
            raise self._fault(f"`{path}` does not begin where it should, or is no plain file")
        return size_bytes

    def _create(self, directory: Path, path: str) -> IO[bytes]:
        target = directory / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return target.open("xb")
        except FileExistsError as error:
            raise self._fault(f"`{path}` is there twice") from error

    def _copy(self, size_bytes: int, output: IO[bytes]) -> str:
        digest = hashlib.sha256()
        for start in range(0, size_bytes, _CHUNK_BYTES):
            chunk = self._read(min(_CHUNK_BYTES, size_bytes - start))
            digest.update(chunk)
            output.write(chunk)
        self._read_padding(size_bytes)
        return digest.hexdigest()

    def _read_padding(self, size_bytes: int) -> None:
        padding = _padding(size_bytes)
        if self._read(len(padding)) != padding:
            raise self._fault("there is something between two of its files")
        self._end_of_files = self._archive.tell()

    def _read(self, num_bytes: int) -> bytes:
        data = self._archive.read(num_bytes)
        if len(data) < num_bytes:
            raise self._fault(f"it is cut off after {self._archive.tell()} bytes")
        return data

    def _fault(self, what: str) -> ArtifactError:
        return ArtifactError(
            f"`{self._file}` is damaged, or no packed artifact: {what}",
            hint="copy the file again, or pack the artifact again: `neuron-llm artifact pack`",
        )


def _check_artifact(file: Path, directory: Path, files: Mapping[str, FileEntry]) -> None:
    """Hold the list of an archive, to which its files were held, to the manifest among them."""
    try:
        manifest = read_manifest(directory)
    except ArtifactError as error:
        message = f"`{file}` holds no artifact that can be used: {error.message}"
        raise ArtifactError(message, hint=error.hint) from error
    listed = {entry.path: entry for entry in manifest.all_files()}
    if {path: entry for path, entry in files.items() if path != MANIFEST_FILE} != listed:
        raise ArtifactError(f"`{file}` does not hold the files that its manifest names")
    if not is_sealed((directory / MANIFEST_FILE).read_bytes()):
        raise _damaged(file, MANIFEST_FILE)


def _damaged(where: Path, path: str) -> ArtifactError:
    return ArtifactError(
        f"`{where}` is damaged: the checksum of `{path}` differs",
        hint="compile it again: `neuron-llm compile CONFIG`",
    )
