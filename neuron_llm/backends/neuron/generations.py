"""The generations of Neuron devices: what each of them is, and what follows from that.

A generation that can be compiled for is an entry of `GENERATIONS` and named nowhere else. Every
figure is a constant of the generation, never of the machine at hand. Knows no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from neuron_llm.quantities import GIB

# Of the device memory, what an engine may use at all, and of that the most that goes to KV.
_USABLE_FRACTION = 0.9
_KV_FRACTION = 0.3


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What is particular to a generation.

    Attributes:
        chip: its name.
        cores: neuronx-cc's name for its cores; devices with the same ones run each other's graphs.
        num_cores: physical cores of a chip.
        core_memory_bytes: device memory of one physical core.
        logical_nc_configs: how many physical cores a logical one can have; the last by default.
        bytes_per_s: memory bandwidth of a chip.
        flops_per_s: peak of a chip in 16-bit floats.
        float32_flops_per_s: peak of a chip in 32-bit floats.
    """

    chip: str
    cores: str
    num_cores: int
    core_memory_bytes: int
    logical_nc_configs: tuple[int, ...]
    bytes_per_s: float
    flops_per_s: float
    float32_flops_per_s: float

    @property
    def joins_cores(self) -> bool:
        """Whether a logical core can have more than one physical one."""
        return len(self.logical_nc_configs) > 1

    @property
    def default_logical_nc_config(self) -> int:
        """How many physical cores a logical core has unless told otherwise."""
        return self.logical_nc_configs[-1]


GENERATIONS: dict[str, Generation] = {
    "inf2": Generation(
        chip="Inferentia2",
        cores="gen2",
        num_cores=2,
        core_memory_bytes=16 * GIB,
        logical_nc_configs=(1,),
        bytes_per_s=820 * GIB,
        flops_per_s=190e12,
        float32_flops_per_s=47.5e12,
    ),
    "trn1": Generation(
        chip="Trainium",
        cores="gen2",
        num_cores=2,
        core_memory_bytes=16 * GIB,
        logical_nc_configs=(1,),
        bytes_per_s=820 * GIB,
        flops_per_s=190e12,
        float32_flops_per_s=47.5e12,
    ),
    "trn1n": Generation(
        chip="Trainium",
        cores="gen2",
        num_cores=2,
        core_memory_bytes=16 * GIB,
        logical_nc_configs=(1,),
        bytes_per_s=820 * GIB,
        flops_per_s=190e12,
        float32_flops_per_s=47.5e12,
    ),
    "trn2": Generation(
        chip="Trainium2",
        cores="gen3",
        num_cores=8,
        core_memory_bytes=12 * GIB,
        logical_nc_configs=(1, 2),
        bytes_per_s=2.9e12,
        flops_per_s=667e12,
        float32_flops_per_s=181e12,
    ),
    "trn3": Generation(
        chip="Trainium3",
        cores="gen4",
        num_cores=8,
        core_memory_bytes=18 * GIB,
        logical_nc_configs=(1, 2),
        bytes_per_s=4.9e12,
        flops_per_s=671e12,
        float32_flops_per_s=183e12,
    ),
}
"""By what the compiler's `--target` and `neuron_config.target` call them."""

EXAMPLE_TARGET = "trn2"
"""What a message writes where any of them would do."""
LOGICAL_NC_CONFIGS = tuple(
    sorted({count for known in GENERATIONS.values() for count in known.logical_nc_configs})
)
"""How many physical cores a logical one can have on some generation."""
# With each name of cores behind the targets that have them, as neuronx-cc lists them.
PLATFORM_TARGETS = tuple(
    name
    for cores in dict.fromkeys(known.cores for known in GENERATIONS.values())
    for name in (*(target for target, known in GENERATIONS.items() if known.cores == cores), cores)
)
"""What neuronx-cc takes for a target: every target, and every name of cores."""

# The generation of an instance: its type is such as `inf2.xlarge`, sysfs says `Inf2`.
_INSTANCE_TYPE = re.compile(r"(inf|trn)\d+", re.IGNORECASE)


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
        return GENERATIONS[self.target].core_memory_bytes * self.logical_nc_config

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


def target_of_instance(instance_type: str | None) -> str | None:
    """Return the target of an instance type: of `trn2.48xlarge` and of `Trn2`, `trn2`."""
    match = _INSTANCE_TYPE.match(instance_type or "")
    target = match.group().lower() if match else None
    return target if target in GENERATIONS else None


def is_neuron_instance(instance_type: str | None) -> bool:
    """Return whether an EC2 instance of the type has Neuron devices."""
    return _INSTANCE_TYPE.match(instance_type or "") is not None


def runs_graphs_of(device: str, target: str) -> bool:
    """Return whether a device of one generation runs graphs that were compiled for another."""
    if device not in GENERATIONS or target not in GENERATIONS:
        return device == target
    return GENERATIONS[device].cores == GENERATIONS[target].cores
