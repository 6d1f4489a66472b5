"""What `neuron-ls` tells about the devices: `neuron-ls --json-output`, a list with one object each.

Newer releases add fields, older ones lack some, and a field may be null; whatever is missing is
unknown. From SDK 2.34 on the option is gone, so that a failure here must not be the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuron_llm.backends.neuron.command import CommandRunner

TIMEOUT_S = 10.0
# AWS's profile scripts put it on PATH; sudo, systemd and containers do not run them.
_TOOL = Path("opt", "aws", "neuron", "bin", "neuron-ls")


@dataclass(frozen=True)
class ListedProcess:
    """A process that uses a device."""

    pid: int
    command: str


@dataclass(frozen=True)
class ListedDevice:
    """A device in the words of `neuron-ls`; None for what it does not say.

    Attributes:
        index: of `/dev/neuron<index>`.
        instance_type: of the EC2 instance, such as `trn2.48xlarge`.
        num_cores: logical cores.
        logical_nc_config: physical cores in a logical core.
        memory_bytes: of the device.
        processes: that use it.
    """

    index: int
    instance_type: str | None
    num_cores: int | None
    logical_nc_config: int | None
    memory_bytes: int | None
    processes: tuple[ListedProcess, ...]


@dataclass(frozen=True)
class Listing:
    """The answer of `neuron-ls`, or why there is none.

    Attributes:
        program: its path; None if it is not installed.
        devices: empty if it failed.
        failure: None if it answered as documented.
    """

    program: str | None
    devices: tuple[ListedDevice, ...] = ()
    failure: str | None = None


def list_devices(program: str | None, run: CommandRunner) -> Listing:
    """Ask `neuron-ls`, for `TIMEOUT_S` seconds at most.

    Args:
        program: what `find_neuron_ls` found.
        run: runs it.
    """
    if program is None:
        return Listing(None)
    result = run([program, "--json-output"], TIMEOUT_S)
    if not result.is_ok:
        return Listing(program, failure=result.reason)
    devices = parse_listing(result.stdout)
    if devices is None:
        return Listing(program, failure="it printed something else than a list of devices")
    return Listing(program, devices)


def find_neuron_ls(find_program: Callable[[str], str | None], root: Path) -> str | None:
    """Return the path of `neuron-ls`, whether or not `PATH` leads to it; None without one.

    Args:
        find_program: looks a name up in `PATH`.
        root: what stands for `/`.
    """
    program = find_program("neuron-ls")
    if program is not None:
        return program
    try:
        return str(root / _TOOL) if (root / _TOOL).is_file() else None
    except OSError:
        return None


def parse_listing(text: str) -> tuple[ListedDevice, ...] | None:
    """Return the devices of a listing; None if it is none."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list):
        return None
    devices = [_device(entry) for entry in entries if isinstance(entry, dict)]
    listed = tuple(device for device in devices if device is not None)
    return listed if len(listed) == len(entries) else None


def _device(entry: Mapping[str, Any]) -> ListedDevice | None:
    index = _count(entry.get("neuron_device"))
    if index is None:
        return None
    instance_type = entry.get("instance_type")
    processes = entry.get("neuron_processes")
    return ListedDevice(
        index=index,
        instance_type=instance_type if isinstance(instance_type, str) else None,
        num_cores=_count(entry.get("nc_count")),
        logical_nc_config=_count(entry.get("logical_neuroncore_config")),
        memory_bytes=_count(entry.get("memory_size")),
        processes=_processes(processes if isinstance(processes, list) else []),
    )


def _processes(entries: list[Any]) -> tuple[ListedProcess, ...]:
    listed = []
    for entry in entries:
        pid = _count(entry.get("pid")) if isinstance(entry, dict) else None
        if pid is not None:
            # It is empty in a container that does not see the process.
            listed.append(ListedProcess(pid, str(entry.get("command") or "")))
    return tuple(listed)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
