"""Whether there is the memory that an artifact holds, before any of it is taken. Knows no torch."""

from __future__ import annotations

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.compile.plan.memory import HeldMemory
from neuron_llm.errors import ArtifactError
from neuron_llm.quantities import shown_bytes


def check_memory(manifest: Manifest, available_bytes: int | None) -> None:
    """Refuse an artifact whose weights and KV cache do not fit.

    Args:
        manifest: of the artifact.
        available_bytes: what can be had without swapping; None if unknown, which refuses nothing.

    Raises:
        ArtifactError: they do not.
    """
    held = HeldMemory.of(manifest)
    if available_bytes is None or held.total_bytes <= available_bytes:
        return
    raise ArtifactError(
        f"`{manifest.name}` needs {shown_bytes(held.total_bytes)} of memory, {held}, but"
        f" {shown_bytes(available_bytes)} are available",
        hint="end other programs, or compile it with a smaller `num_gpu_blocks_override`,"
        " `kv_cache_memory` or `max_num_seqs`",
    )
