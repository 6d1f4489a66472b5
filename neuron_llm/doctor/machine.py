"""The machine itself: processors, instruction sets, compilers, memory and disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from neuron_llm.artifact.machine_memory import Memory, read_memory
from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import IsaLevel, missing_features, widest_level
from neuron_llm.doctor.compilers import probe_compilers
from neuron_llm.doctor.finding import Finding, note, ok, problem
from neuron_llm.doctor.host import Host
from neuron_llm.quantities import GIB, shown_bytes

# Room for a small model's weights and graphs; a large one's need more.
_LITTLE_DISK_BYTES = GIB


@dataclass(frozen=True, kw_only=True)
class MachineReport:
    """What was found.

    Attributes:
        findings: in words.
        num_cpus: processors that this process may run on.
        cpu_features: instruction sets of the CPU; None if they cannot be read.
        isa_level: the widest level that the operators run at; None without features.
        memory: what is there and what is left.
        free_disk_bytes: by folder; None where it cannot be told.
    """

    findings: tuple[Finding, ...]
    num_cpus: int
    cpu_features: list[str] | None
    isa_level: IsaLevel | None
    memory: Memory
    free_disk_bytes: dict[str, int | None]


def probe_machine(host: Host, *, cache_dir: Path, artifacts_dir: Path) -> MachineReport:
    """Return what is known about the machine.

    Args:
        host: the machine.
        cache_dir: of compiled graphs.
        artifacts_dir: where `compile` writes to.
    """
    num_cpus = usable_cpus()
    features = read_features(host)
    level = None if features is None else widest_level(features)
    memory = read_memory(host.read)
    folders = {"compile cache": cache_dir, "artifacts": artifacts_dir}
    findings = [
        _cpu_finding(host, num_cpus),
        _level_finding(features, level),
        *probe_compilers(host, level),
        _memory_finding(memory),
        *(_disk_finding(name, folder) for name, folder in folders.items()),
    ]
    free = {str(folder): _free_bytes(folder) for folder in folders.values()}
    return MachineReport(
        findings=tuple(findings),
        num_cpus=num_cpus,
        cpu_features=features,
        isa_level=level,
        memory=memory,
        free_disk_bytes=free,
    )


def usable_cpus() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_features(host: Host) -> list[str] | None:
    """Return the instruction sets of the CPU; None if they cannot be read."""
    try:
        return cpu_features(host.path("/proc/cpuinfo")) or None
    except (OSError, ValueError):
        return None


def _cpu_finding(host: Host, num_cpus: int) -> Finding:
    model = "unknown model"
    for line in (host.read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
            break
    total = os.cpu_count() or num_cpus
    return ok("cpu", f"{model}, {num_cpus} of {total} processors for this process")


def _level_finding(features: Collection[str] | None, level: IsaLevel | None) -> Finding:
    if features is None or level is None:
        return note(
            "instruction sets",
            "unknown: `/proc/cpuinfo` cannot be read or names none",
            hint="an artifact that needs some is refused",
        )
    wider = list(IsaLevel)[: list(IsaLevel).index(level)]
    text = f"widest level `{level}`"
    if wider:
        lacking = ", ".join(f"`{name}`" for name in missing_features(wider[-1], features))
        text += f"; `{wider[-1]}` would need {lacking}"
    return ok("instruction sets", text)


def _memory_finding(memory: Memory) -> Finding:
    if memory.available_bytes is None:
        return note("memory", "unknown: `/proc/meminfo` cannot be read")
    total = "" if memory.total_bytes is None else f" of {shown_bytes(memory.total_bytes)}"
    where = ", by the limit of this control group" if memory.is_limited else ""
    return ok("memory", f"{shown_bytes(memory.available_bytes)}{total} available{where}")


def _disk_finding(name: str, folder: Path) -> Finding:
    subject = f"disk of the {name}"
    free = _free_bytes(folder)
    existing = _existing(folder)
    if free is None or existing is None:
        return note(subject, f"unknown: `{folder}` cannot be read")
    if not existing.is_dir():
        return problem(subject, f"`{existing}` is no folder", hint="move it away")
    text = f"{shown_bytes(free)} free for `{folder}`"
    if not os.access(existing, os.W_OK | os.X_OK):
        hint = "`run` can read it; `compile` needs a folder that this user can write to"
        return note(subject, f"{text}, but this user cannot write there", hint=hint)
    if free < _LITTLE_DISK_BYTES:
        return note(subject, f"only {text}", hint="`compile` writes the weights and every graph")
    return ok(subject, text)


def _free_bytes(folder: Path) -> int | None:
    existing = _existing(folder)
    try:
        return None if existing is None else shutil.disk_usage(existing).free
    except OSError:
        return None


def _existing(folder: Path) -> Path | None:
    """Return the folder, or the nearest one above it that is there."""
    try:
        absolute = folder.absolute()
        return next((path for path in (absolute, *absolute.parents) if path.exists()), None)
    except OSError:
        return None
