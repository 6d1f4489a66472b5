"""Memory is counted before it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.compile.plan.memory import HeldMemory
from neuron_llm.errors import ArtifactError
from neuron_llm.runtime.memory_check import check_memory


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
