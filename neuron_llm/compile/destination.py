"""Where an artifact goes: what is refused before anything is built, and the step into place."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_llm.artifact.latest import LATEST_LINK
from neuron_llm.artifact.manifest import MANIFEST_FILE, Manifest, read_manifest
from neuron_llm.artifact.scratch import artifact_scratch
from neuron_llm.compile.added_buckets import extends, without_buckets
from neuron_llm.errors import ArtifactError

_OTHER_FOLDER = "name another folder with `--artifacts-dir`"
# Of Linux's `fcntl.h` and `stdio.h`.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NOT_HERE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def check_destination(
    destination: Path, config: Mapping[str, Any], *, force: bool, extend: bool = False
) -> None:
    """Refuse what could not be put in place later, before hours of building.

    Args:
        destination: `artifacts_dir/<configuration name>`.
        config: the configuration as a manifest holds it.
        force: an artifact of another configuration may be replaced.
        extend: one that differs in its buckets alone may; which of them stay is seen later.

    Raises:
        ArtifactError: the folder cannot be written, or something is in the way.
    """
    _require_writable(destination.parent)
    link = destination.parent / LATEST_LINK
    if link.exists() and not link.is_symlink():
        raise _in_the_way(link, "no link to the latest artifact")
    if destination.exists() and not (destination / MANIFEST_FILE).is_file():
        raise _in_the_way(destination, "no artifact")
    present = None if force else _present_manifest(destination)
    if present is not None:
        before, after = present.config, config
        if extend:
            before, after = without_buckets(before), without_buckets(after)
        differing = [key for key in after if before.get(key) != after[key]]
        if differing:
            raise _another(destination, ", ".join(f"`{key}`" for key in differing))


def put_in_place(
    directory: Path,
    destination: Path,
    manifest: Manifest,
    *,
    force: bool,
    extend: bool = False,
) -> None:
    """Put a finished artifact in place of what has its name.

    Args:
        directory: the artifact, in a scratch directory that is removed afterwards.
        destination: its place.
        manifest: its manifest.
        force: an artifact of another configuration may be replaced.
        extend: one that is the same save that it lacks graphs may.

    Raises:
        ArtifactError: an artifact of another configuration has the name and may not be replaced.
    """
    if destination.exists():
        present = None if force else _present_manifest(destination)
        is_other = present is not None and present.artifact_id != manifest.artifact_id
        if present is not None and is_other and not (extend and extends(manifest, present)):
            keys = [
                key for key in manifest.config if present.config.get(key) != manifest.config[key]
            ]
            what = ", ".join(f"`{key}`" for key in keys)
            raise _another(destination, what or "the model's files, the versions or the target")
        if exchange(directory, destination):
            return
        # A rename cannot replace a directory that is not empty, so the old one steps aside.
        os.rename(destination, directory.parent / "replaced")
    os.rename(directory, destination)


def exchange(first: Path, second: Path) -> bool:
    """Let two existing paths change places; return whether the system and its disk can do that.

    Raises:
        OSError: they can, and refused it.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_HERE:
        return False
    raise OSError(code, os.strerror(code), str(second))


def _require_writable(folder: Path) -> None:
    """Probe the folder, or where it would be made, so that a refused command leaves nothing."""
    try:
        place = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
        with artifact_scratch(place):
            pass
    except OSError as error:
        reason = (error.strerror or "not writable").lower()
        raise ArtifactError(
            f"artifacts cannot be written to `{folder}`: {reason}", hint=_OTHER_FOLDER
        ) from error


def _present_manifest(destination: Path) -> Manifest | None:
    try:
        return read_manifest(destination)
    except ArtifactError:
        return None  # What is not there or is damaged is not worth keeping.


def _in_the_way(path: Path, what: str) -> ArtifactError:
    return ArtifactError(
        f"`{path}` is in the way: it exists and is {what}", hint=f"move it, or {_OTHER_FOLDER}"
    )


def _another(destination: Path, what: str) -> ArtifactError:
    return ArtifactError(
        f"`{destination}` holds an artifact of another configuration: {what} differs",
        hint="replace it with `--force`, or keep both under names of their own by copying the file",
    )
