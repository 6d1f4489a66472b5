"""Runs the command line in this process, through `main`, as a shell would."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from transformers.utils import logging as transformers_logging

from neuron_llm.cli.main import main

# The fixtures have imported it before a command could silence it.
transformers_logging.disable_progress_bar()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: exit code.
        stdout: everything written there.
        stderr: everything written there.
    """

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)

    @property
    def records(self) -> list[Any]:
        """The JSON lines on stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def run_cli(*args: object, stdin: str = "") -> Ended:
    """Run `neuron-llm` with the arguments; no stream is a terminal."""
    stdout, stderr = _stream(), _stream()
    argv = ["neuron-llm", *map(str, args)]
    with (
        patch.object(sys, "argv", argv),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        # What the command silences, it silences for itself.
        warnings.catch_warnings(),
    ):
        code = _run_main()
    return Ended(code, _text(stdout), _text(stderr))


def run_cli_process(*args: object) -> Ended:
    """Run `neuron-llm` in a process of its own, where nothing is imported yet."""
    ended = subprocess.run(
        [sys.executable, "-m", "neuron_llm.cli.main", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def _run_main() -> int:
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    raise AssertionError("main() ends the process")


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8")
