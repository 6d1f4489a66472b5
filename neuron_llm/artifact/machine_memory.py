"""How much memory this process can still get: the machine's, or its container's if that is less.

Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from neuron_llm.quantities import KIB, whole_number

_CGROUPS = "/sys/fs/cgroup"

TextReader = Callable[[str], str | None]
"""Reads a file by its absolute path; None if it cannot be read."""


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


def read_text_file(path: str) -> str | None:
    """Return a file of this machine, as a `TextReader`."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def read_memory(read_text: TextReader = read_text_file) -> Memory:
    """Return the memory that is left, by `/proc/meminfo` and the limits of the control group.

    Args:
        read_text: reads the files that tell it; by default, those of this machine.
    """
    total = _meminfo_bytes(read_text, "MemTotal")
    available = _meminfo_bytes(read_text, "MemAvailable")
    memory = Memory(total, available)
    for group in _group_limits(read_text):
        if memory.available_bytes is None or group.left_bytes < memory.available_bytes:
            memory = Memory(group.limit_bytes, group.left_bytes, is_limited=True)
    return memory


def _meminfo_bytes(read_text: TextReader, key: str) -> int | None:
    for line in (read_text("/proc/meminfo") or "").splitlines():
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


def _group_limits(read_text: TextReader) -> list[_GroupLimit]:
    """Return the limits of this process's group and of every group around it."""
    limits = []
    for group in _groups(read_text):
        limit = whole_number(read_text(f"{group}/memory.max"))
        used = whole_number(read_text(f"{group}/memory.current"))
        if limit is not None and used is not None:
            reclaimable = _stat_bytes(read_text, group, "inactive_file")
            left = max(limit - max(used - reclaimable, 0), 0)
            limits.append(_GroupLimit(limit, left))
    return limits


def _groups(read_text: TextReader) -> list[str]:
    """Return the folders of the control groups; in a container its own group is the root."""
    for line in (read_text("/proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            parts = PurePosixPath(line.removeprefix("0::")).parts[1:]
            if ".." not in parts:
                return ["/".join((_CGROUPS, *parts[:depth])) for depth in range(len(parts) + 1)]
    return [_CGROUPS]


def _stat_bytes(read_text: TextReader, group: str, key: str) -> int:
    for line in (read_text(f"{group}/memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return whole_number(value) or 0
    return 0
