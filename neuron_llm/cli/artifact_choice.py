"""Which artifact a command means."""

from __future__ import annotations

from pathlib import Path

from neuron_llm.artifact.latest import find_latest
from neuron_llm.artifact.manifest import Manifest, read_manifest
from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.options import ARTIFACTS_DIR


def choose_artifact(given: Path | None, console: Console) -> tuple[Path, Manifest]:
    """Return the directory and manifest of the given artifact or the latest, and say which it is.

    Raises:
        ArtifactError: there is none, or it is damaged.
    """
    directory = find_latest(ARTIFACTS_DIR) if given is None else given
    manifest = read_manifest(directory)
    which = "latest artifact" if given is None else "artifact"
    console.notice(f"{which}: {directory} (id {manifest.artifact_id}, {manifest.backend})")
    return directory, manifest
