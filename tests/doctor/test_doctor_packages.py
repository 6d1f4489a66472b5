"""The packages that every command needs: versions, ranges, and whether they import."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_host import WORKS, commands_of, install, install_neuron_llm, recorded_host, write

from neuron_llm.backends.neuron.command import CommandResult
from neuron_llm.doctor.finding import Finding, Status
from neuron_llm.doctor.packages import probe_packages, read_package

REQUIRED = ("torch<2.14,>=2.9", "transformers<6,>=5.16", "numpy>=1.26", "gguf; extra == 'gguf'")
IMPORTS = {"import torch": WORKS, "import transformers": WORKS}


def install_all(root: Path, *, torch: str = "2.13.0+cpu") -> None:
    install_neuron_llm(root, *REQUIRED)
    install(root, "torch", torch)
    install(root, "transformers", "5.24.0")
    install(root, "numpy", "2.3.1")


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    assert len({finding.subject for finding in findings}) == len(findings)
    return {finding.subject: finding for finding in findings}


def test_everything_fits(tmp_path: Path) -> None:
    install_all(tmp_path)
    findings = probe_packages(recorded_host(tmp_path, IMPORTS))
    assert [(f.subject, f.status, f.text) for f in findings] == [
        ("python", Status.OK, "3.12.3"),
        ("torch", Status.OK, "2.13.0+cpu"),
        ("transformers", Status.OK, "5.24.0"),
        ("requirements", Status.OK, "1 of 1 other packages fit"),
    ]


def test_a_torch_outside_the_range_decides(tmp_path: Path) -> None:
    install_all(tmp_path, torch="2.14.0")
    host = recorded_host(tmp_path, IMPORTS)
    finding = by_subject(probe_packages(host))["torch"]
    assert (finding.status, finding.is_decisive) == (Status.PROBLEM, True)
    assert finding.text == "2.14.0, but neuron-llm needs `<2.14,>=2.9`"
    assert finding.command == "python -m pip install 'torch<2.14,>=2.9'"
    assert not any("import torch" in command for command in commands_of(host))


def test_a_package_that_is_not_there_decides(tmp_path: Path) -> None:
    install_neuron_llm(tmp_path, *REQUIRED)
    findings = by_subject(probe_packages(recorded_host(tmp_path)))
    assert [name for name, finding in findings.items() if finding.is_decisive] == [
        "torch",
        "transformers",
        "numpy",
    ]
    assert findings["numpy"].text == "not installed"
    assert findings["requirements"].text == "0 of 1 other packages fit"


def test_an_import_that_fails_decides_and_says_why(tmp_path: Path) -> None:
    install_all(tmp_path)
    broken = CommandResult(1, stderr="Traceback ...\nOSError: libgomp.so.1: cannot open\n")
    host = recorded_host(tmp_path, {"import torch": broken, "import transformers": WORKS})
    finding = by_subject(probe_packages(host))["torch"]
    assert finding.is_decisive
    assert finding.text == "2.13.0+cpu does not import: OSError: libgomp.so.1: cannot open"


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (CommandResult(-4), "died of SIGILL"),
        (CommandResult(None, failure="did not answer within 120 s"), "did not answer within 120 s"),
    ],
)
def test_an_import_that_kills_or_hangs_decides(
    tmp_path: Path, result: CommandResult, reason: str
) -> None:
    install_all(tmp_path)
    host = recorded_host(tmp_path, {"import torch": result, "import transformers": WORKS})
    finding = by_subject(probe_packages(host))["torch"]
    assert finding.is_decisive
    assert finding.text.endswith(reason)


def test_imports_happen_in_another_process_that_ignores_the_current_folder(tmp_path: Path) -> None:
    install_all(tmp_path)
    host = recorded_host(tmp_path, IMPORTS)
    probe_packages(host)
    assert [command[1] for command in commands_of(host)] == ["-P", "-P"]


def test_a_python_outside_the_range_decides(tmp_path: Path) -> None:
    install_neuron_llm(tmp_path, python=">=3.13")
    finding = by_subject(probe_packages(recorded_host(tmp_path)))["python"]
    assert finding.is_decisive
    assert finding.text == "3.12.3, but neuron-llm needs `>=3.13`"


def test_a_range_of_python_that_nobody_understands_is_left_out(tmp_path: Path) -> None:
    install_neuron_llm(tmp_path, python="whatever")
    assert by_subject(probe_packages(recorded_host(tmp_path)))["python"].status is Status.OK


def test_without_its_own_metadata_the_main_packages_are_looked_for(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.13.0")
    findings = by_subject(probe_packages(recorded_host(tmp_path, IMPORTS)))
    assert findings["torch"].status is Status.OK
    assert findings["transformers"].is_decisive
    assert findings["requirements"].status is Status.NOTE


@pytest.mark.parametrize("metadata", ["", "Version\n", "\x00\x01", "Name: torch\n\nVersion: 2.13"])
def test_metadata_that_says_nothing_is_no_traceback(tmp_path: Path, metadata: str) -> None:
    install_neuron_llm(tmp_path, "torch<2.14,>=2.9")
    write(tmp_path, "/site/torch-2.13.0.dist-info/METADATA", metadata)
    finding = by_subject(probe_packages(recorded_host(tmp_path)))["torch"]
    assert finding.is_decisive
    assert finding.text == "installed, but its metadata cannot be read"


def test_metadata_that_is_no_text_is_no_traceback(tmp_path: Path) -> None:
    folder = tmp_path / "site" / "torch-2.13.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_bytes(b"Version: \xff\xfe\n")
    package = read_package("torch", [str(tmp_path / "site")])
    assert package is not None
    assert package.version == ""


def test_a_folder_without_metadata_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "site" / "torch-2.13.0.dist-info").mkdir(parents=True)
    package = read_package("torch", [str(tmp_path / "site")])
    assert package is not None
    assert package.version == ""


def test_requirements_that_nobody_understands_are_left_out(tmp_path: Path) -> None:
    install_neuron_llm(tmp_path, "???", "torch<2.14,>=2.9")
    findings = by_subject(probe_packages(recorded_host(tmp_path)))
    assert set(findings) == {"python", "torch", "requirements"}


def test_the_first_of_two_installations_counts_as_for_an_import(tmp_path: Path) -> None:
    install(tmp_path / "one", "torch", "2.13.0")
    install(tmp_path / "two", "torch", "2.9.0")
    package = read_package("torch", [str(tmp_path / "one/site"), str(tmp_path / "two/site")])
    assert package is not None
    assert package.version == "2.13.0"
