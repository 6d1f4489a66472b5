"""Artifacts that differ from the compiled one in files that the user's model could have had."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from manifest_edits import edit_manifest


def copy_artifact(artifact: Path, copy: Path, changed: Mapping[str, object]) -> Path:
    """Copy an artifact, with other content in some of its JSON files."""
    shutil.copytree(artifact, copy)
    for name, content in changed.items():
        (copy / name).write_text(json.dumps(content), encoding="utf-8")
    edit_manifest(copy, lambda manifest: _drop_entries(manifest, changed))
    return copy


def _drop_entries(manifest: dict[str, Any], changed: Mapping[str, object]) -> None:
    """The manifest has sizes and checksums of the files that were compiled."""
    manifest["files"] = [entry for entry in manifest["files"] if entry["path"] not in changed]
