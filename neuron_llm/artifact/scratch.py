"""Directories beside the artifacts in which one is made, and what killed compiles left of them.

A scratch directory holds a locked file as long as its process lives. One without is a leftover.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from neuron_llm.artifact.latest import LATEST_LINK
from neuron_llm.errors import ArtifactError

SCRATCH_PREFIX = ".compile-"
_LOCK_FILE = "lock"
# A link that is about to become the latest lives for an instant.
_MAX_LINK_AGE_S = 60


@dataclass(frozen=True)
class Leftover:
    """What a killed process left in an artifacts folder: its path, and the size of its files."""

    path: Path
    size_bytes: int


@contextlib.contextmanager
def artifact_scratch(artifacts_dir: Path) -> Iterator[Path]:
    """Give a directory on the artifacts' file system that goes when the block ends."""
    while True:
        directory = Path(tempfile.mkdtemp(dir=artifacts_dir, prefix=SCRATCH_PREFIX))
        lock = _locked(directory)
        # Whoever prunes may have taken it for a leftover before it was locked.
        if lock is not None:
            break
    with lock:
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def prune_artifacts(artifacts_dir: Path, *, dry_run: bool) -> list[Leftover]:
    """Remove what killed compiles left in a folder of artifacts; return it.

    That is half-made artifacts, those that were replaced and not yet deleted, and links that did
    not become the latest. What a living process has is left alone.

    Args:
        artifacts_dir: the folder.
        dry_run: only tell.

    Raises:
        ArtifactError: there is no such folder.
    """
    if not artifacts_dir.is_dir():
        raise ArtifactError(
            f"`{artifacts_dir}` is no folder of artifacts",
            hint="name a folder that `neuron-llm compile` wrote artifacts to",
        )
    leftovers = []
    for path in sorted(artifacts_dir.iterdir()):
        if path.is_symlink():
            is_old = time.time() - path.lstat().st_mtime >= _MAX_LINK_AGE_S
            if path.name.startswith(f".{LATEST_LINK}-") and is_old:
                leftovers.append(Leftover(path, 0))
                if not dry_run:
                    path.unlink(missing_ok=True)
        elif path.name.startswith(SCRATCH_PREFIX) and path.is_dir():
            leftovers += _prune_scratch(path, dry_run=dry_run)
    return leftovers


def _prune_scratch(directory: Path, *, dry_run: bool) -> list[Leftover]:
    lock = _locked(directory)
    if lock is None:
        return []
    with lock:
        files = [path for path in directory.rglob("*") if path.is_file()]
        leftover = Leftover(directory, sum(path.stat().st_size for path in files))
        if not dry_run:
            shutil.rmtree(directory)
    return [leftover]


def _locked(directory: Path) -> IO[str] | None:
    """Return the locked file of a scratch directory, or None if another process has it."""
    path = directory / _LOCK_FILE
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # What was removed while it was waited for is nobody's any more.
            if not path.exists():
                return None
        except (FileNotFoundError, BlockingIOError):
            return None
        stack.pop_all()
        return file
