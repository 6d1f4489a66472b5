"""The whole diagnosis of a recorded host, and what it needs to be told at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from recorded_host import (
    STUB,
    WORKS,
    install,
    install_neuron_llm,
    recorded_host,
    recording,
    write,
    write_device,
    write_program,
)

from neuron_llm import doctor
from neuron_llm.backends.neuron.command import CommandResult
from neuron_llm.doctor.report import Question, Report, examine
from neuron_llm.version import __version__


def question(root: Path, artifact: Path | None = None) -> Question:
    return Question(artifact, cache_dir=root / "cache", artifacts_dir=root / "artifacts")


def examine_cpu_machine(root: Path, torch: CommandResult = WORKS) -> Report:
    install_neuron_llm(root, "torch<2.14,>=2.9", "transformers<6,>=5.16")
    install(root, "torch", "2.13.0")
    install(root, "transformers", "5.24.0")
    write(root, "/proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
    answers = {"import torch": torch, "import transformers": WORKS}
    environ = {"OMP_NUM_THREADS": "1"}
    return examine(recorded_host(root, answers, environ), question(root))


def test_a_machine_without_anything_of_neuron_can_run(tmp_path: Path) -> None:
    report = examine_cpu_machine(tmp_path)
    assert (report.subject, report.can_run, report.obstacles) == ("the CPU backend", True, [])


def test_a_broken_torch_decides(tmp_path: Path) -> None:
    report = examine_cpu_machine(tmp_path, CommandResult(1, stderr="OSError: no libtorch\n"))
    assert not report.can_run
    document = report.to_json()
    assert (document["can_run"], document["decided_by"]) == (False, ["torch"])


def test_nothing_at_all_is_a_report_too(tmp_path: Path) -> None:
    report = examine(recorded_host(tmp_path / "empty"), question(tmp_path))
    assert [finding.subject for finding in report.obstacles] == ["torch", "transformers"]


def test_stubs_and_a_forbidden_device_do_not_stop_the_cpu_backend(tmp_path: Path) -> None:
    install_neuron_llm(tmp_path)
    install(tmp_path, "torch-neuronx", "1.0", description=STUB)
    write_device(tmp_path, 0)
    write_program(tmp_path, "neuron-ls")
    answers = {"neuron-ls": CommandResult(None, failure="hangs"), "O_RDWR": CommandResult(0, "1\n")}
    report = examine(recorded_host(tmp_path, answers), question(tmp_path))
    assert report.can_run
    problems = [
        finding.subject
        for section in report.sections
        for finding in section.findings
        if finding.status == "problem"
    ]
    assert problems == ["torch-neuronx", "neuron-ls", "/dev/neuron0"]


def test_an_artifact_that_is_none_decides_for_itself(tmp_path: Path) -> None:
    install_neuron_llm(tmp_path)
    directory = tmp_path / "nothing"
    report = examine(recorded_host(tmp_path), question(tmp_path, directory))
    assert report.subject == f"`{directory}`"
    assert [finding.subject for finding in report.obstacles] == ["artifact"]
    assert report.to_json()["artifact"]["directory"] == str(directory)


def test_the_document_of_a_neuron_machine(tmp_path: Path) -> None:
    write_device(tmp_path, 0)
    write_device(tmp_path, 1)
    write_program(tmp_path, "neuron-ls")
    install(tmp_path, "libneuronxla", "1.0", description=STUB)
    answers = {
        "neuron-ls": recording("neuron-ls-inf2.json"),
        "O_RDWR": CommandResult(0, stdout="0\n0\n"),
    }
    environ = {"NEURON_RT_VISIBLE_CORES": "0-3"}
    report = examine(recorded_host(tmp_path, answers, environ), question(tmp_path))
    document = json.loads(json.dumps(report.to_json()))
    assert document["schema_version"] == 1
    assert document["neuron_llm_version"] == __version__
    assert list(document["sections"]) == [
        "packages",
        "neuron packages",
        "neuron devices",
        "machine",
        "environment",
    ]
    assert document["packages"]["libneuronxla"] == {"version": "1.0", "is_stub": True}
    assert document["packages"]["torch-xla"] is None
    (first, _) = document["devices"]["devices"]
    assert (first["name"], first["num_cores"]) == ("Inferentia2", 2)
    assert first["memory_bytes"] == 34359738368
    assert document["environment"]["NEURON_RT_VISIBLE_CORES"] == "0-3"
    assert document["environment"]["XLA_FLAGS"] is None
    for findings in document["sections"].values():
        for finding in findings:
            assert set(finding) == {"subject", "status", "text", "hint", "command", "is_decisive"}


def test_no_file_of_the_room_imports_torch_or_transformers() -> None:
    (folder,) = doctor.__path__
    names = sorted(path.stem for path in Path(folder).glob("*.py") if path.stem != "__init__")
    assert "artifact_check" in names
    imports = "; ".join(f"import neuron_llm.doctor.{name}" for name in names)
    check = "import sys; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", f"{imports}; {check}"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
