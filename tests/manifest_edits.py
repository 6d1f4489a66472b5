"""Manifests that are changed on purpose, as if the artifact had been compiled so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuron_llm.artifact.manifest import manifest_id
from neuron_llm.artifact.manifest_entries import NO_CHECKSUM, sealed


def edit_manifest(
    artifact: Path, change: Callable[[dict[str, Any]], None], *, keep_id: bool = False
) -> None:
    """Change a manifest; unless `keep_id`, it gets the id and the checksum of what it says then."""
    path = artifact / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    if not keep_id:
        manifest["artifact_id"] = manifest_id(manifest)
        manifest.pop("checksum", None)
        text = json.dumps({**manifest, "checksum": NO_CHECKSUM}, indent=1) + "\n"
        path.write_bytes(sealed(text.encode()))
    else:
        path.write_text(json.dumps(manifest), encoding="utf-8")
