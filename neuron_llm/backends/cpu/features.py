"""What this CPU can do, and what a graph compiled on it needs."""

from __future__ import annotations

from pathlib import Path

_PREFIXES = ("amx", "avx", "sse", "ssse", "sve", "asimd", "vaes", "vpclmul")
_NAMES = {"adx", "bf16", "bmi1", "bmi2", "f16c", "fma", "fphp", "gfni", "i8mm", "movbe", "popcnt"}


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Return the instruction sets of this CPU that a compiler may use, sorted.

    Graphs are compiled for the CPU at hand, so these are also what they require.

    Args:
        cpuinfo: the kernel's description of the processors; the first one counts.
    """
    for line in cpuinfo.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            flags = set(value.split())
            return sorted(f for f in flags if f in _NAMES or f.startswith(_PREFIXES))
    return []
