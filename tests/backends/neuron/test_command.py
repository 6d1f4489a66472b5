"""Programs that hang, flood, die or are not there; each is a result, never an exception."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from neuron_llm.backends.neuron.command import MAX_OUTPUT_BYTES, CommandResult, run_command


def python(code: str, timeout_s: float = 60) -> CommandResult:
    return run_command([sys.executable, "-I", "-S", "-c", code], timeout_s)


def test_a_program_that_ends_well() -> None:
    result = python("import sys; print('out'); print('err', file=sys.stderr)")
    assert result == CommandResult(0, "out\n", "err\n")
    assert result.is_ok


def test_arguments_pass_no_shell() -> None:
    code = "import sys; print(sys.argv[1])"
    result = run_command([sys.executable, "-I", "-c", code, "$HOME; echo `id`"], 60)
    assert result.stdout == "$HOME; echo `id`\n"


def test_the_reason_is_the_last_line_of_its_errors() -> None:
    result = python("raise OSError('libtorch_cpu.so: cannot open shared object file')")
    assert (result.exit_code, result.is_ok) == (1, False)
    assert result.reason == "OSError: libtorch_cpu.so: cannot open shared object file"


def test_a_silent_failure_is_named_by_its_exit_code() -> None:
    assert python("raise SystemExit(7)").reason == "ended with exit code 7"


def test_a_failure_that_speaks_on_stdout_is_heard() -> None:
    assert python("print('unknown flag'); raise SystemExit(1)").reason == "unknown flag"


def test_a_program_that_dies_is_named_by_its_signal() -> None:
    result = python("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert result.reason == "died of SIGILL"
    assert CommandResult(-99).reason == "died of signal 99"


def test_a_program_that_hangs_is_killed_with_its_children() -> None:
    child = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    code = (
        "import subprocess, sys, time\n"
        f"print(subprocess.Popen({child}).pid, flush=True)\n"
        "time.sleep(600)"
    )
    timeout_s = 0.5
    while not (result := python(code, timeout_s)).stdout:
        timeout_s *= 2
    assert result.exit_code is None
    assert result.reason == f"did not answer within {timeout_s:g} s"
    deadline = time.monotonic() + 60
    while is_running(int(result.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process is there and not dead, though nobody may have asked for its end."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_program_that_closes_its_streams_and_stays_is_killed() -> None:
    result = python("import os, time; os.close(1); os.close(2); time.sleep(60)", timeout_s=0.5)
    assert result.reason == "did not answer within 0.5 s"


def test_a_flood_is_cut() -> None:
    result = python("while True: print('y' * 1000)")
    assert result.reason == f"printed more than {MAX_OUTPUT_BYTES} bytes"
    assert len(result.stdout) == MAX_OUTPUT_BYTES


def test_bytes_that_are_no_text_are_replaced() -> None:
    result = python("import os; os.write(1, b'\\xff\\xfe')")
    assert result.stdout == "��"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    result = run_command([str(tmp_path / "neuron-ls")], 1)
    assert result.reason == "cannot be started: no such file or directory"


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "neuron-ls"
    path.write_bytes(b"\x00not a program")
    path.chmod(0o755)
    assert run_command([str(path)], 1).reason == "cannot be started: exec format error"


def test_ctrl_c_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "alive"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("selectors.DefaultSelector.select", interrupt)
    with pytest.raises(KeyboardInterrupt):
        python(f"import time; time.sleep(0.5); open({str(mark)!r}, 'w')")
    time.sleep(1)
    assert not mark.exists()
