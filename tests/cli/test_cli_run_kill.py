"""A batch job that does not come to its end: what is finished is on disk, each a whole line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from conftest import Compiled

NUM_LINES = 40


@contextmanager
def waiting_job(llama: Compiled, output: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a job whose prompts come through a pipe that stays open after the first lines."""
    os.mkfifo("prompts")
    command = [sys.executable, "-m", "neuron_llm.cli.main", "run", "--prompts", "prompts"]
    command += ["--artifact", str(llama.artifact), "-o", str(output), "--max-tokens", "4"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        try:
            with open("prompts", "w") as pipe:
                _write_lines(pipe)
                yield job
        finally:
            job.kill()


def _write_lines(pipe: IO[str]) -> None:
    for number in range(NUM_LINES):
        pipe.write(json.dumps({"prompt": f"hello {number}"}) + "\n")
    pipe.flush()


def wait_for_records(output: Path, num_records: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if output.exists() and output.read_text().count("\n") >= num_records:
            return
        time.sleep(0.02)
    raise AssertionError(f"fewer than {num_records} records after a minute")


def whole_records(output: Path) -> list[int]:
    text = output.read_text()
    assert text.endswith("\n")
    return [json.loads(line)["index"] for line in text.splitlines()]


def test_killed_job_leaves_what_is_finished(llama: Compiled, empty_state: Path) -> None:
    output = Path("out.jsonl")
    with waiting_job(llama, output) as job:
        wait_for_records(output, NUM_LINES // 2)
        job.kill()
        assert job.wait() == -signal.SIGKILL
    indices = whole_records(output)
    assert NUM_LINES // 2 <= len(indices) < NUM_LINES
    assert indices == list(range(len(indices)))


def test_interrupted_job_ends_with_130_and_leaves_what_is_finished(
    llama: Compiled, empty_state: Path
) -> None:
    output = Path("out.jsonl")
    with waiting_job(llama, output) as job:
        wait_for_records(output, NUM_LINES // 2)
        job.send_signal(signal.SIGINT)
        _, stderr = job.communicate()
        assert job.returncode == 130
    indices = whole_records(output)
    assert indices == sorted(set(indices))
    assert f"interrupted: {len(indices)} lines done\n" in stderr
    assert not list(Path(".neuron-llm").rglob("*.jsonl"))


def test_reader_that_goes_away_is_no_bug(llama: Compiled, empty_state: Path) -> None:
    lines = "".join(json.dumps({"prompt": "hello"}) + "\n" for _ in range(NUM_LINES))
    Path("prompts.jsonl").write_text(lines)
    command = [sys.executable, "-m", "neuron_llm.cli.main", "run", "--prompts", "prompts.jsonl"]
    command += ["--artifact", str(llama.artifact), "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None and job.stderr is not None
        assert json.loads(job.stdout.readline())["index"] == 0
        job.stdout.close()
        assert job.stderr.read() == b""
        assert job.wait() == 1
