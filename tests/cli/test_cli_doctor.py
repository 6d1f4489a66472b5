"""`neuron-llm doctor` on this machine: streams, exit codes, and lines that fit a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import run_cli, run_cli_process
from manifest_edits import edit_manifest

from neuron_llm.cli.doctor import render_report
from neuron_llm.doctor.finding import Finding, note, obstacle, ok, problem
from neuron_llm.doctor.report import Report, Section


def report(*findings: Finding) -> Report:
    return Report("the CPU backend", (Section("machine", findings),), {})


def test_this_machine_can_run_and_the_report_says_so_last(empty_state: Path) -> None:
    ended = run_cli("doctor")
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert lines[0] == "packages"
    assert lines[-1] == "the CPU backend can run here"
    assert any(line.startswith("  ok       torch: ") for line in lines)
    assert list(empty_state.iterdir()) == [], "looking leaves nothing behind"


def test_an_artifact_that_runs_here_and_one_that_does_not(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    document = run_cli("doctor", "--artifact", tiny_artifact, "--json").document
    assert (document["schema_version"], document["can_run"]) == (1, True)
    assert document["subject"] == f"`{tiny_artifact}`"
    wide = tmp_path / "wide"
    wide.mkdir()
    (wide / "manifest.json").write_bytes((tiny_artifact / "manifest.json").read_bytes())
    edit_manifest(wide, lambda manifest: manifest["backend_versions"].update(torch="1.0"))
    ended = run_cli("doctor", "--artifact", wide)
    assert (ended.code, ended.stderr) == (1, "")
    # A path of any length, whose line is broken at 80 columns.
    verdict = " ".join(ended.stdout.split()).partition(f" `{wide}` ")[2]
    assert verdict.startswith("cannot run here, because of:")
    assert "`weights.safetensors`" in verdict
    assert "`backend`" in verdict
    assert "compiled with torch 1.0" in " ".join(ended.stdout.split())


def test_a_torch_that_does_not_import_is_a_line_and_exit_code_1(
    empty_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = empty_state / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise OSError('libtorch_cpu.so: file too short')")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    ended = run_cli_process("doctor", "--json")
    assert (ended.code, ended.stderr) == (1, "")
    document = json.loads(ended.stdout)
    assert document["can_run"] is False
    assert "torch" in document["decided_by"]
    (finding,) = [f for f in document["sections"]["packages"] if f["subject"] == "torch"]
    assert finding["text"].endswith("does not import: OSError: libtorch_cpu.so: file too short")


def test_the_command_has_an_example_in_its_help() -> None:
    assert "Example: neuron-llm doctor" in run_cli("doctor", "-h").stdout


def test_the_verdict_names_the_lines_that_decide() -> None:
    text = render_report(report(ok("cpu", "fine"), obstacle("torch", "no"), problem("x", "no")))
    assert text.splitlines()[-1] == "the CPU backend cannot run here, because of: `torch`"


def test_a_finding_is_a_line_with_its_way_out_below() -> None:
    text = render_report(report(note("g++", "not on PATH", hint="install it", command="apt g++")))
    assert text == (
        "machine\n"
        "  note     g++: not on PATH\n"
        "           hint: install it\n"
        "           apt g++\n"
        "\n"
        "the CPU backend can run here"
    )


def test_long_lines_are_broken_at_80_columns_and_commands_stay_commands() -> None:
    command = "python -m pip install --extra-index-url https://pip.repos.neuron.amazonaws.com a==1"
    finding = problem("x", "word " * 40, hint="way " * 40, command=command)
    lines = render_report(report(finding)).splitlines()
    assert max(map(len, lines)) <= 80
    shell = [line for line in lines if "pip" in line or "a==1" in line]
    assert " ".join(line.removesuffix("\\").strip() for line in shell) == command
    assert [line.endswith(" \\") for line in shell] == [True] * (len(shell) - 1) + [False]


def test_values_steer_no_terminal() -> None:
    text = render_report(report(ok("NEURON_CC_FLAGS", "`\x1b[2J\udc80`")))
    assert "`\\x1b[2J\\udc80`" in text
    text.encode("utf-8")
