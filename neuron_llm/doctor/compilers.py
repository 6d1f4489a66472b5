"""The compilers on PATH: which versions, and whether they do what `compile` asks of them."""

from __future__ import annotations

import re

from neuron_llm.backends.cpu.operators.isa import IsaLevel, compiler_flags
from neuron_llm.doctor.finding import Finding, note, ok, problem
from neuron_llm.doctor.host import Host

TIMEOUT_S = 60.0
_CXX = "g++"
_NEURON_COMPILER = "neuronx-cc"
# Debian says `g++ (Debian 12.2.0-14) 12.2.0`, Amazon Linux `g++ (GCC) 11.4.1 20230605 (...)`.
_CXX_VERSION = re.compile(r"\) (\d+(?:\.\d+)+)")
_NEURON_VERSION = re.compile(r"\d+(?:\.\d+)+(?:\+\w+)?")


def probe_compilers(host: Host, level: IsaLevel | None) -> list[Finding]:
    """Return findings about g++ and neuronx-cc.

    Args:
        host: whose `PATH` is searched.
        level: the instructions that g++ must know; None if the CPU's are unknown.
    """
    return [_cxx_finding(host, level or IsaLevel.PORTABLE), *_neuron_findings(host)]


def _cxx_finding(host: Host, level: IsaLevel) -> Finding:
    program = host.find_program(_CXX)
    if program is None:
        return note(
            _CXX,
            "not on PATH, so `compile` builds no graphs; `run` needs none",
            command="sudo apt-get install g++",
        )
    asked = host.run([program, "--version"], TIMEOUT_S)
    if not asked.is_ok:
        return problem(_CXX, f"`{program} --version`: {asked.reason}", hint="install it anew")
    match = _CXX_VERSION.search(asked.stdout.partition("\n")[0])
    version = match.group(1) if match else "of an unknown version"
    # The preprocessor alone refuses flags that the compiler does not know.
    flags = [*compiler_flags(level), "-fopenmp", "-std=c++17"]
    tried = host.run([program, *flags, "-E", "-x", "c++", "/dev/null"], TIMEOUT_S)
    if not tried.is_ok:
        return problem(
            _CXX,
            f"{version} cannot compile for this CPU: {tried.reason}",
            hint="install a newer g++; `run` needs none",
        )
    return ok(_CXX, f"{version}, `{program}`")


def _neuron_findings(host: Host) -> list[Finding]:
    program = host.find_program(_NEURON_COMPILER)
    if program is None:
        return []
    subject = f"{_NEURON_COMPILER} on PATH"
    asked = host.run([program, "--version"], TIMEOUT_S)
    match = _NEURON_VERSION.search(asked.stdout + asked.stderr)
    if not asked.is_ok or match is None:
        return [problem(subject, f"`{program} --version`: {asked.reason}")]
    return [ok(subject, f"{match.group()}, `{program}`")]
