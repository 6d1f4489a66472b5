"""The entry point: exit codes, streams, and what it does not import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runner import run_cli

from neuron_llm.errors import ConfigError, NeuronLLMError
from neuron_llm.version import __version__

HEAVY = ("torch", "transformers", "numpy")


def raise_in_run(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `neuron-llm run` fail with an error that no command line can provoke."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("neuron_llm.cli.run.choose_artifact", fail)


@pytest.mark.parametrize("args", [["--help"], ["run", "-h"], ["compile", "-h"], ["--version"]])
def test_help_and_version_import_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys; from neuron_llm.cli.main import main\n"
        f"sys.argv[1:] = {args!r}\n"
        "try: main()\n"
        f"finally: print(sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "[]\n"
    assert ended.stdout


def test_version_is_one_line_on_stdout() -> None:
    ended = run_cli("--version")
    assert (ended.code, ended.stdout, ended.stderr) == (0, f"neuron-llm {__version__}\n", "")


@pytest.mark.parametrize("command", ["compile", "run", "bucket-report"])
def test_every_command_has_an_example_in_its_help(command: str) -> None:
    ended = run_cli(command, "-h")
    assert ended.code == 0
    assert f"Example: neuron-llm {command}" in ended.stdout


@pytest.mark.parametrize("group", [[], ["artifact"], ["cache"]])
def test_a_list_of_commands_cuts_no_line_short(group: list[str]) -> None:
    ended = run_cli(*group, "-h")
    assert "Commands:" in ended.stdout and "..." not in ended.stdout.split("Commands:")[1]


def test_arguments_are_named_as_the_help_speaks_of_them() -> None:
    for command, named in (
        ("compile", "CONFIG"),
        ("bucket-report", "CONFIG"),
        ("inspect", "ARTIFACT"),
    ):
        usage = run_cli(command, "-h").stdout.splitlines()[0]
        assert usage.split()[-1].strip("[]{}") == named and "[[" not in usage


def test_no_command_shows_the_help_and_is_a_usage_error() -> None:
    ended = run_cli()
    assert (ended.code, ended.stdout) == (2, "")
    assert "Usage: neuron-llm" in ended.stderr


def test_unknown_command_is_a_usage_error_with_a_suggestion() -> None:
    ended = run_cli("compil")
    assert (ended.code, ended.stdout) == (2, "")
    assert "Did you mean 'compile'?" in ended.stderr


def test_expected_failure_is_error_blank_line_hint(empty_state: Path) -> None:
    ended = run_cli("run")
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr == (
        "error: no artifact in `artifacts`\n\n"
        "hint: compile one first: `neuron-llm compile CONFIG`, or give the directory of one\n"
    )


def test_every_fault_of_a_configuration_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = ("a.yaml:1: [bold]x[/]: " + "long " * 40 + "end", "a.yaml:2: second")
    raise_in_run(monkeypatch, ConfigError("2 faults in `a.yaml`", faults=faults))
    ended = run_cli("run")
    assert ended.code == 1
    assert ended.stderr.splitlines() == ["error: 2 faults in `a.yaml`", *faults]


def test_bug_is_one_line_and_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_run(monkeypatch, KeyError("blocks"))
    ended = run_cli("run")
    assert (ended.code, ended.stdout) == (70, "")
    assert ended.stderr == (
        "error: this is a bug in neuron-llm: KeyError: 'blocks'\n"
        "hint: run again with `--verbose` and report what it shows\n"
    )


@pytest.mark.parametrize("args", [["-v", "run"], ["run", "-v"], ["run", "--verbose"]])
def test_verbose_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    raise_in_run(monkeypatch, KeyError("blocks"))
    ended = run_cli(*args)
    assert ended.code == 70
    assert "Traceback (most recent call last)" in ended.stderr
    assert "error: this is a bug" in ended.stderr


def test_full_disk_is_an_expected_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_run(monkeypatch, OSError(28, "No space left on device", "out.jsonl"))
    ended = run_cli("run")
    assert ended.code == 1
    assert ended.stderr == "error: no space left on device: `out.jsonl`\n"


def test_of_a_copy_that_fails_the_written_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_run(monkeypatch, OSError(28, "No space left on device", "cache/a", None, "new/a"))
    assert run_cli("run").stderr == "error: no space left on device: `new/a`\n"


def test_sigterm_cleans_up_and_ends_with_143(monkeypatch: pytest.MonkeyPatch) -> None:
    is_clean = False

    def wait(*_: object) -> None:
        nonlocal is_clean
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            is_clean = True

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("neuron_llm.cli.run.choose_artifact", wait)
    ended = run_cli("run")
    assert (ended.code, ended.stdout, ended.stderr, is_clean) == (143, "", "", True)
    assert signal.getsignal(signal.SIGTERM) is before


def test_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_run(monkeypatch, KeyboardInterrupt())
    ended = run_cli("run")
    assert (ended.code, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize("args", [["-q", "run"], ["run", "-q"]])
def test_quiet_keeps_errors(monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
    raise_in_run(monkeypatch, NeuronLLMError("it failed", hint="mend it"))
    assert run_cli(*args).stderr == "error: it failed\n\nhint: mend it\n"
