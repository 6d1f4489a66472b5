"""The memory that an artifact holds, counted before any of it is taken. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.errors import ArtifactError
from neuron_llm.quantities import DTYPE_BYTES, shown_bytes


@dataclass(frozen=True)
class HeldMemory:
    """What an artifact holds for as long as it is loaded.

    Attributes:
        weights_bytes: mapped once for all graphs.
        kv_cache_bytes: once for all graphs, the null block included.
    """

    weights_bytes: int
    kv_cache_bytes: int

    @classmethod
    def of(cls, manifest: Manifest) -> HeldMemory:
        """Return what a compiled artifact holds."""
        settings, model = manifest.settings, manifest.model
        num_slots = settings.num_blocks * settings.block_size
        slot_bytes = 2 * model.num_kv_heads * model.head_dim * DTYPE_BYTES[settings.dtype]
        return cls(
            weights_bytes=manifest.weights.file.size_bytes,
            kv_cache_bytes=num_slots * slot_bytes * model.num_layers,
        )

    @property
    def total_bytes(self) -> int:
        """Both together."""
        return self.weights_bytes + self.kv_cache_bytes

    def __str__(self) -> str:
        """Return the two in words."""
        return (
            f"{shown_bytes(self.weights_bytes)} of weights and"
            f" {shown_bytes(self.kv_cache_bytes)} of KV cache"
        )


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
