"""How much memory this process can still get: the machine's, or its container's if that is less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from neuron_llm.doctor.host import Host, whole_number
from neuron_llm.quantities import KIB

_CGROUPS = "/sys/fs/cgroup"


@dataclass(frozen=True)
class Memory:
    """Memory of the host; None where nothing tells.

    Attributes:
        total_bytes: of the machine, or the limit of the control group.
        available_bytes: what can be had without swapping; page cache counts as free.
        is_limited: the control group has less left than the machine.
    """

    total_bytes: int | None
    available_bytes: int | None
    is_limited: bool = False


def read_memory(host: Host) -> Memory:
    """Return the memory that is left, by `/proc/meminfo` and the limits of the control group."""
    total = _meminfo_bytes(host, "MemTotal")
    available = _meminfo_bytes(host, "MemAvailable")
    memory = Memory(total, available)
    for group in _group_limits(host):
        if memory.available_bytes is None or group.left_bytes < memory.available_bytes:
            memory = Memory(group.limit_bytes, group.left_bytes, is_limited=True)
    return memory


def _meminfo_bytes(host: Host, key: str) -> int | None:
    for line in (host.read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            count = whole_number(value.removesuffix("kB"))
            return None if count is None else count * KIB
    return None


@dataclass(frozen=True)
class _GroupLimit:
    """What a control group may have, and what of it is left."""

    limit_bytes: int
    left_bytes: int


def _group_limits(host: Host) -> list[_GroupLimit]:
    """Return the limits of this process's group and of every group around it."""
    limits = []
    for group in _groups(host):
        limit = whole_number(host.read(f"{group}/memory.max"))
        used = whole_number(host.read(f"{group}/memory.current"))
        if limit is not None and used is not None:
            reclaimable = _stat_bytes(host, group, "inactive_file")
            left = max(limit - max(used - reclaimable, 0), 0)
            limits.append(_GroupLimit(limit, left))
    return limits


def _groups(host: Host) -> list[str]:
    """Return the folders of the control groups; in a container its own group is the root."""
    for line in (host.read("/proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            parts = PurePosixPath(line.removeprefix("0::")).parts[1:]
            if ".." not in parts:
                return ["/".join((_CGROUPS, *parts[:depth])) for depth in range(len(parts) + 1)]
    return [_CGROUPS]


def _stat_bytes(host: Host, group: str, key: str) -> int:
    for line in (host.read(f"{group}/memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return whole_number(value) or 0
    return 0
