"""Other programs, asked without trust: no shell, a time limit, and a limit on what they print."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neuron_llm.quantities import KIB, MIB

MAX_OUTPUT_BYTES = MIB
_CHUNK_BYTES = 64 * KIB
# A process that waits inside a driver cannot be killed; it is left behind after this long.
_KILL_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class CommandResult:
    """How a command ended.

    Attributes:
        exit_code: negative for the signal that it died of; None if it was not left to its end.
        stdout: what it printed, at most `MAX_OUTPUT_BYTES`.
        stderr: the same of its errors.
        failure: why it has no exit code.
    """

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    failure: str | None = None

    @property
    def is_ok(self) -> bool:
        """Whether it ended by itself and well."""
        return self.exit_code == 0

    @property
    def reason(self) -> str:
        """Why it is not well, in one line: the last that it said, where it said something."""
        if self.exit_code is None:
            return self.failure or "did not end"
        if self.exit_code < 0:
            return f"died of {_signal_name(-self.exit_code)}"
        lines = self.stderr.strip().splitlines() or self.stdout.strip().splitlines()
        return lines[-1].strip() if lines else f"ended with exit code {self.exit_code}"


CommandRunner = Callable[[Sequence[str], float], CommandResult]
"""Runs a program with its arguments, for at most so many seconds."""


def run_command(argv: Sequence[str], timeout_s: float) -> CommandResult:
    """Run a program to its end, or end it.

    Args:
        argv: the program and its arguments; no shell reads them.
        timeout_s: seconds, after which it is killed with all that it started.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return CommandResult(None, failure=f"cannot be started: {reason}")
    stdout, stderr = bytearray(), bytearray()
    try:
        failure = _wait(process, stdout, stderr, timeout_s)
    finally:
        # Ctrl-C does not reach it: it has a session of its own.
        _end(process)
    exit_code = process.returncode if failure is None else None
    return CommandResult(exit_code, _text(stdout), _text(stderr), failure)


def _wait(
    process: subprocess.Popen[bytes], stdout: bytearray, stderr: bytearray, timeout_s: float
) -> str | None:
    """Collect what is printed until the process ends; return why it was not waited for."""
    deadline = time.monotonic() + timeout_s
    late = f"did not answer within {timeout_s:g} s"
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, stdout)
        selector.register(process.stderr, selectors.EVENT_READ, stderr)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready:
                return late
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif len(key.data) > MAX_OUTPUT_BYTES:
                    return f"printed more than {MAX_OUTPUT_BYTES} bytes"
    try:
        process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return late
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_TIMEOUT_S)


def _text(output: bytearray) -> str:
    return output[:MAX_OUTPUT_BYTES].decode("utf-8", errors="replace")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
