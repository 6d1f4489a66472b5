"""Artifacts that differ from the compiled one in files that the user's model could have had."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path


def copy_artifact(artifact: Path, copy: Path, changed: Mapping[str, object]) -> Path:
    """Copy an artifact, with other content in some of its JSON files."""
    shutil.copytree(artifact, copy)
    for name, content in changed.items():
        (copy / name).write_text(json.dumps(content), encoding="utf-8")
    # The manifest has the sizes of the files that were compiled.
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"] = [entry for entry in manifest["files"] if entry["path"] not in changed]
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return copy
