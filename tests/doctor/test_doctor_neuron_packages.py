"""AWS's packages: stubs of the public index, pairs, and pairs that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_host import STUB, WORKS, commands_of, install, recorded_host

from neuron_llm.backends.neuron.command import CommandResult
from neuron_llm.doctor.finding import Finding, Status
from neuron_llm.doctor.neuron_packages import NEURON_PACKAGES, probe_neuron_packages

FRAMEWORK = "2.9.0.2.15.32035+de43f57c"
COMPILER = "2.27.5334.0+f702b353"
PAIR = "torch-neuronx and neuronx-cc"
# What the public index has, by its own wheels.
STUBS = {
    "torch-neuronx": "1.0",
    "neuronx-cc": "1.0.post1",
    "neuronx-distributed": "0.1",
    "libneuronxla": "1.0",
}
IMPORTS = {"import torch_neuronx": WORKS}


def findings_of(root: Path, answers: dict[str, CommandResult] | None = None) -> list[Finding]:
    findings = probe_neuron_packages(recorded_host(root, answers or IMPORTS))
    assert not any(finding.is_decisive for finding in findings)
    return findings


def about(subject: str, findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.subject == subject]


def install_sdk(root: Path, *, compiler: str = COMPILER, torch: str = "2.9.1") -> None:
    install(root, "torch", torch)
    install(root, "torch-xla", "2.9.0")
    install(root, "libneuronxla", "2.2.17544.0+fb9962bf")
    install(root, "neuronx-cc", compiler)
    requires = ["torch==2.9.*", "torch-xla==2.9.*", "libneuronxla==2.2.17544.0"]
    install(root, "torch-neuronx", FRAMEWORK, requires)


def test_nothing_installed_is_one_note_with_the_install_line(tmp_path: Path) -> None:
    finding = findings_of(tmp_path)[0]
    assert finding.status is Status.NOTE
    assert finding.subject == ", ".join(NEURON_PACKAGES)
    assert finding.command == (
        "python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com"
        " neuronx-cc==2.27.5334.0 torch-neuronx==2.9.0.2.15.32035"
    )


@pytest.mark.parametrize(("name", "version"), STUBS.items())
def test_a_stub_is_a_problem_with_the_right_install_line(
    tmp_path: Path, name: str, version: str
) -> None:
    install(tmp_path, name, version, description=STUB)
    host = recorded_host(tmp_path)
    (finding,) = about(name, probe_neuron_packages(host))
    assert finding.status is Status.PROBLEM
    assert finding.text == f"{version} is an empty stub of the public index, not AWS's package"
    assert finding.command is not None
    assert f" {name}==2." in finding.command or f" {name}==0.19." in finding.command
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in finding.command
    assert commands_of(host) == [], "a stub is never imported"


def test_the_description_of_a_real_package_makes_no_stub(tmp_path: Path) -> None:
    install(tmp_path, "neuronx-cc", COMPILER, description="Not the WRONG PACKAGE.")
    (finding,) = about("neuronx-cc", findings_of(tmp_path))
    assert (finding.status, finding.text) == (Status.OK, COMPILER)


def test_a_matched_set_is_all_well(tmp_path: Path) -> None:
    install_sdk(tmp_path)
    findings = findings_of(tmp_path)
    assert [f for f in findings if f.status is Status.PROBLEM] == []
    (pair,) = about(PAIR, findings)
    assert (pair.status, pair.text) == (Status.OK, "a pair of AWS's SDK 2.32")
    (imported,) = about("import torch_neuronx", findings)
    assert imported.status is Status.OK


@pytest.mark.parametrize(
    ("compiler", "sdk"), [("2.26.6360.0", "2.31"), ("2.27.5334.0", "2.32"), ("2.28.7631.0", "2.33")]
)
def test_every_documented_compiler_of_a_framework_pairs(
    tmp_path: Path, compiler: str, sdk: str
) -> None:
    install_sdk(tmp_path, compiler=compiler)
    (pair,) = about(PAIR, findings_of(tmp_path))
    assert (pair.status, pair.text) == (Status.OK, f"a pair of AWS's SDK {sdk}")


@pytest.mark.parametrize("compiler", ["2.21.33363.0", "2.25.3371.0+f524f7f8", "2.27.9999.0", "x"])
def test_a_compiler_of_another_release_is_a_problem(tmp_path: Path, compiler: str) -> None:
    install_sdk(tmp_path, compiler=compiler)
    (pair,) = about(PAIR, findings_of(tmp_path))
    assert pair.status is Status.PROBLEM
    assert f"{compiler} is installed" in pair.text
    assert "2.26.6360.0 (SDK 2.31)" in pair.text
    assert pair.command is not None
    assert "neuronx-cc==2.27.5334.0 torch-neuronx==2.9.0.2.15.32035" in pair.command


def test_a_newer_compiler_is_not_called_wrong(tmp_path: Path) -> None:
    install_sdk(tmp_path, compiler="2.29.1.0")
    (pair,) = about(PAIR, findings_of(tmp_path))
    assert pair.status is Status.NOTE


def test_an_unknown_framework_is_not_called_wrong(tmp_path: Path) -> None:
    install(tmp_path, "torch-neuronx", "2.14.3.0")
    install(tmp_path, "neuronx-cc", COMPILER)
    (pair,) = about(PAIR, findings_of(tmp_path))
    assert pair.status is Status.NOTE


def test_the_torch_of_another_version_is_named_by_whoever_needs_it(tmp_path: Path) -> None:
    install_sdk(tmp_path, torch="2.13.0")
    problems = [f for f in findings_of(tmp_path) if f.status is Status.PROBLEM]
    assert [(f.subject, f.text) for f in problems] == [
        ("torch-neuronx", "needs `torch==2.9.*`, but 2.13.0 is installed"),
        ("torch-xla", "needs `torch==2.9.*`, but 2.13.0 is installed"),
    ]


def test_what_a_package_requires_and_is_not_there_is_named(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.9.1")
    install(tmp_path, "torch-neuronx", FRAMEWORK, ["libneuronxla==2.2.17544.0", "scipy>=1"])
    texts = [finding.text for finding in about("torch-neuronx", findings_of(tmp_path))]
    assert texts == [
        FRAMEWORK,
        "needs `libneuronxla==2.2.17544.0`, which is not installed",
        "needs `scipy>=1`, which is not installed",
    ]


def test_a_stub_beside_real_packages_is_named_once(tmp_path: Path) -> None:
    install_sdk(tmp_path)
    metadata = next((tmp_path / "site").glob("libneuronxla-*"))
    (metadata / "METADATA").unlink()
    metadata.rmdir()
    install(tmp_path, "libneuronxla", "1.0", description=STUB)
    problems = [f for f in findings_of(tmp_path) if f.status is Status.PROBLEM]
    assert [f.subject for f in problems] == ["libneuronxla"]


def test_an_import_that_fails_is_told_in_its_words(tmp_path: Path) -> None:
    install_sdk(tmp_path)
    failed = CommandResult(1, stderr="ImportError: libnrt.so.1: cannot open shared object file\n")
    (finding,) = about(
        "import torch_neuronx", findings_of(tmp_path, {"import torch_neuronx": failed})
    )
    assert finding.status is Status.PROBLEM
    assert finding.text == "ImportError: libnrt.so.1: cannot open shared object file"


def test_a_version_that_is_none_is_no_traceback(tmp_path: Path) -> None:
    install(tmp_path, "torch-neuronx", "dev", [])
    install(tmp_path, "neuronx-cc", "")
    (finding,) = about("torch-neuronx", findings_of(tmp_path))
    assert finding.text == "dev"
