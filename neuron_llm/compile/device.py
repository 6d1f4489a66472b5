"""The memory of the devices that are compiled for: constants of a target, never of a machine."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 2**30

# Of the device memory, what an engine may use at all, and of that the most that goes to KV.
_USABLE_FRACTION = 0.9
_KV_FRACTION = 0.3

# Device memory of one physical core. trn2 and trn3 join two of them in a logical core by default.
_CORE_BYTES = {
    "inf2": 16 * GIB,
    "trn1": 16 * GIB,
    "trn1n": 16 * GIB,
    "trn2": 12 * GIB,
    "trn3": 18 * GIB,
}
JOINABLE_TARGETS = ("trn2", "trn3")


@dataclass(frozen=True)
class DeviceMemory:
    """What one logical core of a target offers.

    Attributes:
        target: device generation.
        logical_nc_config: physical cores in the logical core.
    """

    target: str
    logical_nc_config: int

    @property
    def total_bytes(self) -> int:
        """Device memory of the logical core."""
        return _CORE_BYTES[self.target] * self.logical_nc_config

    @property
    def usable_bytes(self) -> int:
        """What weights, KV cache and activations may fill together."""
        return int(self.total_bytes * _USABLE_FRACTION)

    def kv_budget_bytes(self, weights_bytes: int) -> int:
        """Return the most bytes of KV cache beside the weights, by vLLM Neuron's formula.

        What the weights leave of the usable memory, but at most 30% of it. A trn2 core pair has
        24 GiB, of which 21.6 are usable, of which 6.48 may hold KV.
        """
        left_bytes = max(self.usable_bytes - weights_bytes, 0)
        return min(left_bytes, int(self.usable_bytes * _KV_FRACTION))


def default_logical_nc_config(target: str) -> int:
    """Return how many physical cores a logical core of the target has unless told otherwise."""
    return 2 if target in JOINABLE_TARGETS else 1
