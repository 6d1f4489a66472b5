"""One Neuron device, put together from the device node, sysfs and `neuron-ls`."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from neuron_llm.backends.neuron.devices import SYSFS_DEVICES
from neuron_llm.backends.neuron.generations import (
    GENERATIONS,
    DeviceMemory,
    target_of_instance,
)
from neuron_llm.backends.neuron.neuron_ls import ListedDevice, ListedProcess
from neuron_llm.doctor.host import Host
from neuron_llm.quantities import whole_number

_NODE_NAME = re.compile(r"neuron([0-9]{1,6})")
_CORE_NAME = re.compile(r"neuron_core[0-9]+")


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device, as far as it is known; None for what nothing says.

    Attributes:
        index: of `/dev/neuron<index>`.
        name: of the chip, such as `Inferentia2`.
        target: what graphs for it are compiled for, such as `inf2`.
        num_cores: logical cores where `neuron-ls` answered, else physical ones.
        logical_nc_config: physical cores in a logical core.
        memory_bytes: HBM of the device.
        processes: that use it.
        has_node: whether `/dev/neuron<index>` is there.
    """

    index: int
    name: str | None
    target: str | None
    num_cores: int | None
    logical_nc_config: int | None
    memory_bytes: int | None
    processes: tuple[ListedProcess, ...]
    has_node: bool

    @property
    def node(self) -> str:
        """Path of its device node."""
        return f"/dev/neuron{self.index}"


def device_indices(host: Host, folder: str) -> set[int]:
    """Return the numbers of the `neuron<number>` in a folder; none if it cannot be read."""
    with contextlib.suppress(OSError):
        names = [entry.name for entry in host.path(folder).iterdir()]
        matches = [_NODE_NAME.fullmatch(name) for name in names]
        return {int(match.group(1)) for match in matches if match}
    return set()


def read_device(host: Host, index: int, listed: ListedDevice | None, *, has_node: bool) -> Device:
    """Put together what is known of a device.

    Args:
        host: whose sysfs is read.
        index: its number.
        listed: what `neuron-ls` says of it, if it does.
        has_node: whether its device node is there.
    """
    folder = f"{SYSFS_DEVICES}/neuron{index}"
    instance = listed.instance_type if listed else None
    instance = instance or host.read(f"{folder}/info/architecture/instance_type")
    target = target_of_instance(instance)
    num_physical_cores = _num_physical_cores(host, folder)
    memory_bytes = listed.memory_bytes if listed else None
    if memory_bytes is None and target is not None and num_physical_cores:
        memory_bytes = DeviceMemory(target, num_physical_cores).total_bytes
    chip = GENERATIONS[target].chip if target else None
    return Device(
        index=index,
        name=host.read(f"{folder}/info/architecture/device_name") or chip,
        target=target,
        num_cores=(listed.num_cores if listed else None) or num_physical_cores,
        logical_nc_config=listed.logical_nc_config if listed else None,
        memory_bytes=memory_bytes,
        processes=listed.processes if listed else (),
        has_node=has_node,
    )


def _num_physical_cores(host: Host, folder: str) -> int | None:
    count = whole_number(host.read(f"{folder}/core_count"))
    if count is not None:
        return count
    # The file has moved between drivers; the cores themselves are folders.
    with contextlib.suppress(OSError):
        names = [entry.name for entry in host.path(folder).iterdir()]
        return sum(_CORE_NAME.fullmatch(name) is not None for name in names) or None
    return None
