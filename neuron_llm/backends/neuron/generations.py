"""Generations of Neuron devices: by which names instances say them, and which run which graphs."""

from __future__ import annotations

import re

CHIPS = {"inf2": "Inferentia2", "trn1": "Trainium", "trn2": "Trainium2", "trn3": "Trainium3"}
"""What can be compiled for, and the chip's name."""

# The generation of an instance: its type is such as `inf2.xlarge`, sysfs says `Inf2`.
_INSTANCE_TYPE = re.compile(r"(inf|trn)\d+", re.IGNORECASE)
# Chips that run each other's graphs.
_SAME_CORES = {"trn1": "inf2", "trn1n": "inf2"}


def target_of_instance(instance_type: str | None) -> str | None:
    """Return the target of an instance type: of `trn2.48xlarge` and of `Trn2`, `trn2`."""
    match = _INSTANCE_TYPE.match(instance_type or "")
    target = match.group().lower() if match else None
    return target if target in CHIPS else None


def is_neuron_instance(instance_type: str | None) -> bool:
    """Return whether an EC2 instance of the type has Neuron devices."""
    return _INSTANCE_TYPE.match(instance_type or "") is not None


def runs_graphs_of(device: str, target: str) -> bool:
    """Return whether a device of one generation runs graphs that were compiled for another."""
    return _SAME_CORES.get(device, device) == _SAME_CORES.get(target, target)
