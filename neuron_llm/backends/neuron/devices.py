"""Whether this machine has Neuron devices, of which generation, and how their cores are joined."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from neuron_llm.backends.neuron.generations import target_of_instance

# AWS's profile scripts put it on PATH; sudo, systemd and containers do not run them.
_TOOL = "/opt/aws/neuron/bin/neuron-ls"
_TIMEOUT_S = 10.0


def has_device(dev: Path = Path("/dev")) -> bool:
    """Whether there is a device node, or `neuron-ls` knows of a device."""
    return any(dev.glob("neuron[0-9]*")) or bool(_listed_devices())


def logical_nc_configs() -> set[int]:
    """Return how many physical cores a logical core has here; empty where nothing says so."""
    found = {device.get("logical_neuroncore_config") for device in _listed_devices()}
    return {value for value in found if isinstance(value, int)}


def targets(sysfs: Path = Path("/sys/devices/virtual/neuron_device")) -> set[str]:
    """Return the generations of the devices here; empty where nothing says so."""
    said = [device.get("instance_type") for device in _listed_devices()]
    for path in sysfs.glob("neuron[0-9]*/info/architecture/instance_type"):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            said.append(path.read_text().strip())
    found = {target_of_instance(name) for name in said if isinstance(name, str)}
    return {target for target in found if target is not None}


def _listed_devices() -> list[dict[str, Any]]:
    tool = shutil.which("neuron-ls") or _TOOL
    try:
        answer = subprocess.run(
            [tool, "--json-output"], capture_output=True, timeout=_TIMEOUT_S, check=True
        )
        devices = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    is_list = isinstance(devices, list)
    return [device for device in devices if isinstance(device, dict)] if is_list else []
