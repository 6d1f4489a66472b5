"""Hosts that are recordings: a tree of files, installed packages, and what programs answered.

The files under `recordings/` have the form that the Neuron documentation shows; the description of
the stubs is the one in the wheels of the public index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from neuron_llm.backends.neuron.command import CommandResult
from neuron_llm.doctor.host import Host

RECORDINGS = Path(__file__).parent / "recordings"
STUB = (
    "WRONG PACKAGE. Please install the package from Neuron Repository"
    " - pip.repos.neuron.amazonaws.com"
)
PYTHON = "/usr/bin/python3"
WORKS = CommandResult(0)


class RecordedPrograms:
    """Answers by the first recording whose words all stand in the command, in any order.

    Args:
        answers: words, separated by spaces, to what such a command answered.
    """

    def __init__(self, answers: Mapping[str, CommandResult]) -> None:
        self.answers = answers
        self.commands: list[list[str]] = []

    def __call__(self, argv: Sequence[str], timeout_s: float) -> CommandResult:
        assert timeout_s > 0
        self.commands.append(list(argv))
        text = " ".join(argv)
        for words, answer in self.answers.items():
            if all(word in text for word in words.split()):
                return answer
        raise AssertionError(f"nothing is recorded for {argv}")


def recorded_host(
    root: Path,
    answers: Mapping[str, CommandResult] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Host:
    """Return the host below `root`; its packages lie in `site`, its programs in `bin`."""
    return Host(
        root=root,
        environ={"PATH": str(root / "bin"), **(environ or {})},
        package_path=(str(root / "site"),),
        run=RecordedPrograms(answers or {}),
        python=PYTHON,
        python_version="3.12.3",
    )


def commands_of(host: Host) -> list[list[str]]:
    """Return every command that a recorded host was asked to run."""
    assert isinstance(host.run, RecordedPrograms)
    return host.run.commands


def write(root: Path, absolute: str, text: str) -> Path:
    """Write a file of the host."""
    path = root / absolute.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_program(root: Path, name: str, folder: str = "/bin") -> Path:
    """Write a program that can be found; what it answers is recorded elsewhere."""
    path = write(root, f"{folder}/{name}", "#!/bin/sh\nexit 99\n")
    path.chmod(0o755)
    return path


def install(
    root: Path, name: str, version: str, requires: Sequence[str] = (), description: str = ""
) -> None:
    """Install a package: its metadata, which is all that is ever read of it."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    write(root, f"/site/{folder}/METADATA", "\n".join([*lines, "", description, ""]))


def install_neuron_llm(root: Path, *requires: str, python: str = ">=3.11") -> None:
    """Install neuron-llm with requirements of its own."""
    install(root, "neuron-llm", "0.1.0", requires)
    metadata = next((root / "site").glob("neuron_llm-*/METADATA"))
    metadata.write_text(f"Requires-Python: {python}\n{metadata.read_text()}")


def write_device(
    root: Path, index: int, *, name: str = "Inferentia2", instance: str = "Inf2", cores: int = 2
) -> None:
    """Write a device node, and the device's part of sysfs as the driver lays it out."""
    write(root, f"/dev/neuron{index}", "")
    folder = f"/sys/devices/virtual/neuron_device/neuron{index}"
    write(root, f"{folder}/core_count", f"{cores}\n")
    write(root, f"{folder}/info/architecture/arch_type", "NCv2\n")
    write(root, f"{folder}/info/architecture/device_name", f"{name}\n")
    write(root, f"{folder}/info/architecture/instance_type", f"{instance}\n")
    for core in range(cores):
        write(root, f"{folder}/neuron_core{core}/info/architecture/arch_type", "NCv2\n")


def recording(name: str) -> CommandResult:
    """Return what a program printed, once, on a machine that has one."""
    return CommandResult(0, stdout=(RECORDINGS / name).read_text())
