"""The environment variables that matter, and the values that cannot be meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from neuron_llm.backends.neuron.generations import LOGICAL_NC_CONFIGS, PLATFORM_TARGETS
from neuron_llm.doctor.device import Device
from neuron_llm.doctor.finding import Finding, note, ok, problem
from neuron_llm.quantities import whole_number

VARIABLES = {
    "NEURON_LLM_CACHE_DIR": "where compiled graphs are kept",
    "XDG_CACHE_HOME": "where that is, unless it is set",
    "OMP_NUM_THREADS": "threads of a graph on the CPU",
    "GOMP_SPINCOUNT": "how long a thread spins at a barrier; 1000 unless you set it",
    "OMP_WAIT_POLICY": "whether it spins at all",
    "CXX": "the C++ compiler of AOTInductor, instead of g++",
    "LD_LIBRARY_PATH": "shared libraries that come before the installed ones",
    "LD_PRELOAD": "the same, for every program",
    "PYTHONPATH": "packages that come before the installed ones",
    "HF_HOME": "where models from the hub are kept",
    "HF_HUB_OFFLINE": "no model is fetched from the hub",
    "TRANSFORMERS_OFFLINE": "the same",
    "NEURON_RT_VISIBLE_CORES": "the cores that this process may use",
    "NEURON_RT_NUM_CORES": "how many cores it reserves",
    "NEURON_LOGICAL_NC_CONFIG": "physical cores in a logical core",
    "NEURON_CC_FLAGS": "flags of neuronx-cc",
    "NEURON_COMPILE_CACHE_URL": "neuronx-cc's own cache",
    "NEURON_PLATFORM_TARGET_OVERRIDE": "what is compiled for, whatever the configuration says",
    "NEURON_RT_LOG_LEVEL": "log of the Neuron runtime",
    "XLA_FLAGS": "flags of torch-xla",
}
"""What is looked at, and what it sets. Others that start with `NEURON_` are shown too."""

_PREFIX = "NEURON_"
_TRUE = {"1", "ON", "YES", "TRUE"}
_CORES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")
_LOGICAL_CONFIGS = tuple(map(str, LOGICAL_NC_CONFIGS))
# What the command line sets is 1000; libgomp's own default spins for milliseconds.
_LONG_SPIN = 100_000


@dataclass(frozen=True)
class _Machine:
    """What the values are held against."""

    num_cpus: int
    num_cores: int | None


def shown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return every variable that matters with its value, None where it is not set."""
    others = sorted(name for name in environ if name.startswith(_PREFIX) and name not in VARIABLES)
    return {name: environ.get(name) for name in (*VARIABLES, *others)}


def probe_environment(
    environ: Mapping[str, str], *, num_cpus: int, devices: Sequence[Device]
) -> list[Finding]:
    """Return a finding for each variable that is set, and one that names the others.

    Args:
        environ: all variables.
        num_cpus: processors that this process may run on.
        devices: whose cores the Neuron variables name.
    """
    cores = [device.num_cores for device in devices]
    known = [count for count in cores if count is not None]
    machine = _Machine(num_cpus, sum(known) if known and len(known) == len(cores) else None)
    variables = shown_variables(environ)
    findings = [
        _finding(name, value, environ, machine)
        for name, value in variables.items()
        if value is not None
    ]
    unset = [name for name, value in variables.items() if value is None]
    if unset:
        findings.append(ok("not set", ", ".join(unset)))
    return findings


def _finding(name: str, value: str, environ: Mapping[str, str], machine: _Machine) -> Finding:
    check = _CHECKS.get(name)
    fault = check(value, environ, machine) if check else None
    meaning = f" ({VARIABLES[name]})" if name in VARIABLES else ""
    if fault is None:
        return ok(name, f"`{value}`{meaning}")
    return Finding(name, fault.status, f"`{value}`: {fault.text}", fault.hint)


def _check_threads(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    counts = [whole_number(count) or 0 for count in value.split(",")]
    if not all(counts):
        return problem("", "not a number of threads, so it is ignored", hint="unset it")
    if counts[0] > machine.num_cpus:
        text = f"more threads than the {machine.num_cpus} processors of this process"
        return note("", text, hint=f"set it to {machine.num_cpus} or less, or unset it")
    return None


def _check_spin(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    is_endless = value.lower() in ("infinite", "infinity")
    if is_endless or (whole_number(value) or 0) > _LONG_SPIN:
        text = (
            "threads that wait keep a processor busy; with other processes beside it, steps crawl"
        )
        return note("", text, hint="unset it: the command line sets 1000")
    return None


def _check_wait(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    if value.lower() == "active" and "GOMP_SPINCOUNT" not in environ:
        return note("", "threads that wait keep a processor busy", hint="unset it")
    return None


def _check_offline(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    if value.upper() in _TRUE:
        hint = "unset it to compile a model by its hub id"
        return note("", "no model is fetched from the hub", hint=hint)
    return None


def _check_visible(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    if not _CORES.fullmatch(value):
        return problem("", "not a list of cores", hint="write it as `0`, `0-3` or `0,2`")
    numbers = [int(number) for number in re.findall(r"\d+", value)]
    if machine.num_cores is not None and max(numbers) >= machine.num_cores:
        text = f"core {max(numbers)} does not exist; there are {machine.num_cores}, from 0"
        return problem("", text, hint="name cores that exist, or unset it")
    if "NEURON_RT_NUM_CORES" in environ:
        return note("", "wins over `NEURON_RT_NUM_CORES`", hint="unset one of them")
    return None


def _check_num_cores(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    count = whole_number(value)
    if count is None:
        return problem("", "not a number of cores", hint="write a number, 0 for all")
    if machine.num_cores is not None and count > machine.num_cores:
        text = f"more cores than the {machine.num_cores} that exist"
        return problem("", text, hint="set it lower, 0 for all")
    return None


def _check_logical(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    if value not in _LOGICAL_CONFIGS:
        text = f"neither {' nor '.join(_LOGICAL_CONFIGS)}"
        return problem("", text, hint="unset it, or set what the graphs are for")
    return None


def _check_target(value: str, environ: Mapping[str, str], machine: _Machine) -> Finding | None:
    if value.lower() not in PLATFORM_TARGETS:
        hint = f"one of {', '.join(f'`{target}`' for target in PLATFORM_TARGETS)}"
        return problem("", "not a target that neuronx-cc knows", hint=hint)
    return None


_CHECKS: dict[str, Callable[[str, Mapping[str, str], _Machine], Finding | None]] = {
    "OMP_NUM_THREADS": _check_threads,
    "GOMP_SPINCOUNT": _check_spin,
    "OMP_WAIT_POLICY": _check_wait,
    "HF_HUB_OFFLINE": _check_offline,
    "TRANSFORMERS_OFFLINE": _check_offline,
    "NEURON_RT_VISIBLE_CORES": _check_visible,
    "NEURON_RT_NUM_CORES": _check_num_cores,
    "NEURON_LOGICAL_NC_CONFIG": _check_logical,
    "NEURON_PLATFORM_TARGET_OVERRIDE": _check_target,
}
