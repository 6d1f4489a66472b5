"""Memory is counted before it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuron_llm import LLM
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.held_memory import HeldMemory, check_memory
from neuron_llm.artifact.machine_memory import Memory
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.errors import ArtifactError


def test_what_fits_exactly_is_served_and_a_byte_less_is_refused(tiny_artifact: Path) -> None:
    manifest = read_manifest(tiny_artifact)
    needed = HeldMemory.of(manifest).total_bytes
    check_memory(manifest, needed)
    with pytest.raises(ArtifactError, match=r"`tiny` needs .* of memory, .* of KV cache") as caught:
        check_memory(manifest, needed - 1)
    hint = caught.value.hint or ""
    assert all(f"`{key}`" in hint for key in ("num_gpu_blocks_override", "kv_cache_memory"))


def test_where_nothing_tells_what_is_available_nothing_is_refused(tiny_artifact: Path) -> None:
    check_memory(read_manifest(tiny_artifact), None)


def test_whoever_opens_an_artifact_is_refused_before_memory_is_taken(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = HeldMemory.of(read_manifest(tiny_artifact)).total_bytes
    memory = Memory(total_bytes=2 * needed, available_bytes=needed - 1)
    monkeypatch.setattr("neuron_llm.artifact.artifact.read_memory", lambda: memory)
    monkeypatch.setattr("neuron_llm.runtime.llm.load_engine", lambda *_: pytest.fail("too late"))
    with pytest.raises(ArtifactError, match=r"`tiny` needs .* of memory"):
        Artifact.open(tiny_artifact)
    with pytest.raises(ArtifactError, match=r"`tiny` needs .* of memory"):
        LLM(tiny_artifact)
