"""Whether this machine has Neuron devices, of which generation, and how their cores are joined."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.backends.neuron.command import run_command
from neuron_llm.backends.neuron.generations import target_of_instance
from neuron_llm.backends.neuron.neuron_ls import find_neuron_ls, list_devices

SYSFS_DEVICES = "/sys/devices/virtual/neuron_device"
"""Where the driver has a folder for each device."""
_ROOT = Path("/")


@dataclass(frozen=True)
class DevicesHere:
    """The devices of a machine, all together.

    Attributes:
        are_there: there is a device node, or `neuron-ls` knows of a device.
        targets: their generations; empty where nothing says so.
        logical_nc_configs: physical cores in a logical one; empty where nothing says so.
    """

    are_there: bool
    targets: frozenset[str]
    logical_nc_configs: frozenset[int]


def devices_here(root: Path = _ROOT) -> DevicesHere:
    """Look at the device nodes and sysfs, and ask `neuron-ls` once.

    Args:
        root: what stands for `/`.
    """
    listed = list_devices(find_neuron_ls(shutil.which, root), run_command).devices
    said = [device.instance_type for device in listed]
    sysfs = root / SYSFS_DEVICES.lstrip("/")
    for path in sysfs.glob("neuron[0-9]*/info/architecture/instance_type"):
        # A driver that is half loaded has files that cannot be read; the others still say it.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            said.append(path.read_text().strip())
    joined = (device.logical_nc_config for device in listed)
    targets = map(target_of_instance, said)
    return DevicesHere(
        are_there=any((root / "dev").glob("neuron[0-9]*")) or bool(listed),
        targets=frozenset(target for target in targets if target is not None),
        logical_nc_configs=frozenset(count for count in joined if count is not None),
    )
