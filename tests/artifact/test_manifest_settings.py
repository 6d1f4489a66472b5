"""Settings that came later: manifests that do not know them stay what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Compiled
from greedy_artifact import greedy_copy
from manifest_edits import edit_manifest

from neuron_llm.artifact.manifest import Manifest, manifest_id, read_manifest
from neuron_llm.errors import ArtifactError


def test_a_manifest_of_graphs_that_give_logits_says_nothing_of_tokens(llama: Compiled) -> None:
    written = json.loads((llama.artifact / "manifest.json").read_text())
    assert "samples_greedily" not in written["settings"]
    manifest = read_manifest(llama.artifact)
    assert not manifest.settings.samples_greedily
    assert manifest.identified().artifact_id == manifest_id(written) == manifest.artifact_id


def test_a_manifest_of_graphs_that_give_tokens_says_so_in_its_id(
    llama: Compiled, tmp_path: Path
) -> None:
    manifest = read_manifest(greedy_copy(llama.artifact, tmp_path / "greedy"))
    assert manifest.settings.samples_greedily
    assert manifest.artifact_id != read_manifest(llama.artifact).artifact_id
    again = Manifest.model_validate(manifest.model_dump(mode="json"))
    assert again == manifest and again.identified() == manifest


def test_what_no_switch_is_is_damage(llama: Compiled, tmp_path: Path) -> None:
    copy = greedy_copy(llama.artifact, tmp_path / "greedy")
    edit_manifest(copy, lambda m: m["settings"].update(samples_greedily="perhaps"))
    with pytest.raises(ArtifactError, match=r"is damaged at `settings\.samples_greedily`"):
        read_manifest(copy)
