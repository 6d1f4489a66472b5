"""Which artifact is the latest: a symbolic link `artifacts/latest`, replaced in one step."""

from __future__ import annotations

import os
from pathlib import Path

from neuron_llm.errors import ArtifactError

ARTIFACTS_DIR = Path("artifacts")
"""Where artifacts go if nothing is said: a folder of the current directory."""

LATEST_LINK = "latest"


def mark_latest(artifact: Path) -> None:
    """Make an artifact the latest of its folder."""
    link = artifact.parent / LATEST_LINK
    temporary = artifact.parent / f".{LATEST_LINK}-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(artifact.name)
        os.replace(temporary, link)
    finally:
        temporary.unlink(missing_ok=True)


def find_latest(artifacts_dir: Path) -> Path:
    """Return the latest artifact's own directory.

    Raises:
        ArtifactError: nothing was compiled there, or the latest is gone.
    """
    link = artifacts_dir / LATEST_LINK
    if not link.is_symlink():
        raise ArtifactError(
            f"no artifact in `{artifacts_dir}`",
            hint="compile one first: `neuron-llm compile CONFIG`, or give the directory of one",
        )
    artifact = artifacts_dir / os.readlink(link)
    if not artifact.is_dir():
        raise ArtifactError(
            f"the latest artifact `{artifact}` is gone",
            hint="compile it again: `neuron-llm compile CONFIG`, or give the directory of one",
        )
    return artifact
