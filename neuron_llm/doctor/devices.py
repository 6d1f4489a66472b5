"""The Neuron devices: which are there, what they have, and whether this user can open them."""

from __future__ import annotations

import errno
import grp
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from neuron_llm.backends.neuron.devices import SYSFS_DEVICES
from neuron_llm.backends.neuron.generations import is_neuron_instance
from neuron_llm.backends.neuron.neuron_ls import Listing, find_neuron_ls, list_devices
from neuron_llm.doctor.device import Device, device_indices, read_device
from neuron_llm.doctor.finding import Finding, note, ok, problem
from neuron_llm.doctor.host import Host
from neuron_llm.quantities import shown_bytes

OPEN_TIMEOUT_S = 10.0
_READ_AND_WRITE = stat.S_IRGRP | stat.S_IWGRP
# Opening is the only honest test: a container may forbid what the file's mode allows. It may also
# hang in the driver, so it happens in another process, for all devices at once.
_OPEN_SCRIPT = """\
import os, sys
for node in sys.argv[1:]:
    try:
        os.close(os.open(node, os.O_RDWR))
        print(0)
    except OSError as error:
        print(error.errno)
"""


@dataclass(frozen=True)
class DeviceReport:
    """What was found.

    Attributes:
        findings: in words.
        devices: every device, by index.
        driver_version: of the loaded kernel module; None without one.
        instance_type: what the machine says it is, such as `inf2.xlarge`, if it says so.
    """

    findings: tuple[Finding, ...]
    devices: tuple[Device, ...]
    driver_version: str | None
    instance_type: str | None


def probe_devices(host: Host) -> DeviceReport:
    """Return what is known about the Neuron devices, their driver and their tools."""
    driver_version = host.read("/sys/module/neuron/version")
    instance_type = host.read("/sys/devices/virtual/dmi/id/product_name")
    nodes = device_indices(host, "/dev")
    known = device_indices(host, SYSFS_DEVICES) | nodes
    if not known:
        finding = _no_device(host, driver_version, instance_type)
        return DeviceReport((finding,), (), driver_version, instance_type)
    listing = list_devices(_neuron_ls(host), host.run)
    listed = {device.index: device for device in listing.devices}
    devices = tuple(
        read_device(host, index, listed.get(index), has_node=index in nodes)
        for index in sorted(known | set(listed))
    )
    findings = [
        *_device_findings(devices),
        _driver_finding(driver_version),
        _listing_finding(listing),
        *_node_findings(host, devices),
        *_process_findings(devices),
    ]
    return DeviceReport(tuple(findings), devices, driver_version, instance_type)


def _neuron_ls(host: Host) -> str | None:
    return find_neuron_ls(host.find_program, host.root)


def _no_device(host: Host, driver_version: str | None, instance_type: str | None) -> Finding:
    nothing = "none: there is no `/dev/neuron0`"
    if driver_version:
        return problem(
            "devices",
            f"{nothing}, though the driver {driver_version} is loaded",
            hint="in a container, pass the devices on: `--device /dev/neuron0`",
        )
    if is_neuron_instance(instance_type) or _neuron_ls(host) is not None:
        why = f"this is a `{instance_type}`" if instance_type else "AWS's tools are installed"
        return problem(
            "devices",
            f"{nothing}, and the driver is not loaded; {why}",
            hint="load the driver (`sudo modprobe neuron`), or install it; in a container, pass"
            " the devices on: `--device /dev/neuron0`",
            command="sudo apt-get install aws-neuronx-dkms",
        )
    return note("devices", nothing, hint="the CPU backend needs none")


def _device_findings(devices: Sequence[Device]) -> list[Finding]:
    """Return a line for each run of equal devices."""
    findings = []
    for shape, run in groupby(devices, key=_shape):
        indices = [device.index for device in run]
        names = f"neuron{indices[0]}"
        if len(indices) > 1:
            names += f" to neuron{indices[-1]}"
            shape += " each"
        findings.append(ok(names, shape))
    return findings


def _shape(device: Device) -> str:
    parts = [device.name or "a chip that nothing names"]
    cores = "an unknown number of cores"
    if device.num_cores is not None:
        cores = "1 core" if device.num_cores == 1 else f"{device.num_cores} cores"
    if (device.logical_nc_config or 1) > 1:
        cores += f" of {device.logical_nc_config} physical ones"
    parts.append(cores)
    if device.memory_bytes is None:
        parts.append("HBM unknown")
    else:
        parts.append(f"{shown_bytes(device.memory_bytes)} HBM")
    return ", ".join(parts)


def _driver_finding(version: str | None) -> Finding:
    if version:
        return ok("driver", version)
    return note("driver", "its version cannot be read from `/sys/module/neuron/version`")


def _listing_finding(listing: Listing) -> Finding:
    if listing.program is None:
        return note(
            "neuron-ls",
            "not installed; sysfs was read instead",
            command="sudo apt-get install aws-neuronx-tools",
        )
    if listing.failure is not None:
        return problem(
            "neuron-ls",
            f"no answer that can be used; sysfs was read instead: {listing.failure}",
            hint=f"see what `{listing.program} --json-output` says",
        )
    return ok("neuron-ls", f"`{listing.program}`")


def _node_findings(host: Host, devices: Sequence[Device]) -> list[Finding]:
    findings = []
    missing = [device.node for device in devices if not device.has_node]
    if missing:
        findings.append(
            problem(
                missing[0],
                f"{_joined(missing)}: the driver has the device, but there is no device node",
                hint=f"in a container, pass it on: `--device {missing[0]}`",
            )
        )
    nodes = [device.node for device in devices if device.has_node]
    if nodes:
        findings += _open_findings(host, nodes)
    return findings


def _open_findings(host: Host, nodes: Sequence[str]) -> list[Finding]:
    paths = [str(host.path(node)) for node in nodes]
    result = host.run([host.python, "-I", "-S", "-c", _OPEN_SCRIPT, *paths], OPEN_TIMEOUT_S)
    answers = result.stdout.split()
    if not result.is_ok or len(answers) != len(nodes):
        text = f"{_joined(nodes)} cannot be opened: {result.reason}"
        return [problem(nodes[0], text, hint="the driver's log may tell why: `sudo dmesg`")]
    by_reason: dict[str, list[str]] = {}
    for node, answer in zip(nodes, answers, strict=True):
        by_reason.setdefault(answer, []).append(node)
    return [_open_finding(host, reason, opened) for reason, opened in by_reason.items()]


def _open_finding(host: Host, reason: str, nodes: Sequence[str]) -> Finding:
    code = int(reason) if reason.isdecimal() else errno.EIO
    if code == 0:
        return ok(nodes[0], f"this user can open {_joined(nodes)}")
    text = f"this user cannot open {_joined(nodes)}: {os.strerror(code).lower()}"
    if code == errno.EACCES:
        return _permission_finding(nodes[0], text, group_that_can_open(host.path(nodes[0])))
    if code == errno.EPERM:
        hint = f"in a container, pass it on: `--device {nodes[0]}`"
        return problem(nodes[0], text, hint=hint)
    return problem(nodes[0], text, hint="the driver's log may tell why: `sudo dmesg`")


def _permission_finding(subject: str, text: str, group: str | None) -> Finding:
    if group is None:
        return problem(
            subject,
            f"{text}; only root can",
            hint="the driver's rules give it to the group `neuron`",
            command="sudo chgrp neuron /dev/neuron* && sudo chmod g+rw /dev/neuron*",
        )
    return problem(
        subject,
        f"{text}; the group `{group}` can",
        hint="join the group, then log in again",
        command=f"sudo usermod -aG {group} $USER",
    )


def group_that_can_open(path: Path) -> str | None:
    """Return the group whose members can read and write a file; None if only root can."""
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_mode & _READ_AND_WRITE != _READ_AND_WRITE or status.st_gid == 0:
        return None
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        # A container need not know the names of its host's groups.
        return str(status.st_gid)


def _process_findings(devices: Sequence[Device]) -> list[Finding]:
    commands: Mapping[int, str] = {
        process.pid: process.command for device in devices for process in device.processes
    }
    if not commands:
        return []
    shown = ", ".join(
        f"{pid} (`{command}`)" if command else str(pid) for pid, command in sorted(commands.items())
    )
    return [
        note(
            "processes",
            f"already on the devices: {shown}",
            hint="a core belongs to its process until that ends",
        )
    ]


def _joined(nodes: Sequence[str]) -> str:
    """Name the nodes; of many, the first and the last."""
    if len(nodes) <= 2:
        return " and ".join(f"`{node}`" for node in nodes)
    return f"`{nodes[0]}` to `{nodes[-1]}` ({len(nodes)} devices)"
