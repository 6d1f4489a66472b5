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
from typing import IO, Any

import pytest
from cli_runner import run_cli
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


def prompts_with_bad_lines() -> bytes:
    """Return lines of which every fifth is no JSON."""
    lines = (
        b"no json" if number % 5 == 2 else b'{"id": "r%d", "prompt": "hello %d"}' % (number, number)
        for number in range(NUM_LINES)
    )
    return b"\n".join(lines)


def without_times(output: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in output.read_text().split("\n")[:-1]]
    kept = {"index", "id", "text", "finish_reason", "error"}
    return [{name: record[name] for name in kept} for record in records]


def test_a_job_that_goes_on_has_every_line_once(llama: Compiled, empty_state: Path) -> None:
    Path("prompts").write_bytes(prompts_with_bad_lines())
    command = ["run", "--artifact", llama.artifact, "--prompts", "prompts", "--temperature", "0"]
    assert run_cli(*command, "-o", "whole").code == 3
    whole, output = Path("whole").read_bytes(), Path("out.jsonl")
    lines = whole.splitlines(keepends=True)
    later = b"".join(lines[11:13])
    identity = began(*command)
    # Killed at once, within a record, and interrupted with records of later lines; then finished.
    for num_kept, rest in ((0, b""), (1, lines[1][:20]), (9, later), (NUM_LINES, b"")):
        kept = b"".join(lines[:num_kept])
        output.write_bytes(kept + rest)
        if num_kept < NUM_LINES:
            Path("out.jsonl.job.json").write_bytes(identity)
        ended = run_cli(*command, "-o", output, "--resume")
        assert ended.code == 3
        num_bad = sum(number % 5 == 2 for number in range(num_kept))
        told = f"warning: errors in {num_bad} lines that were done already\n"
        assert (told in ended.stderr) == (num_bad > 0)
        assert output.read_bytes().startswith(kept)
        assert without_times(output) == without_times(Path("whole"))
        assert not Path("out.jsonl.job.json").exists()


def began(*command: object) -> bytes:
    """Return what a job of a command leaves beside its output while it runs."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("neuron_llm.runtime.batch.job_run.forget_identity", lambda _: None)
        run_cli(*command, "-o", "began")
    return Path("began.job.json").read_bytes()


def test_a_job_goes_on_only_as_it_began(llama: Compiled, empty_state: Path) -> None:
    prompts, output, note = Path("prompts"), Path("out.jsonl"), Path("out.jsonl.job.json")
    prompts.write_bytes(prompts_with_bad_lines())
    command = ["run", "--artifact", llama.artifact, "--prompts", "prompts", "--temperature", "0"]
    note.write_bytes(began(*command))
    half = b"".join(Path("began").read_bytes().splitlines(keepends=True)[:5])
    output.write_bytes(half)

    def refusal(*options: str) -> str:
        ended = run_cli(*command, *options, "-o", "out.jsonl", "--resume")
        assert ended.code == 1 and output.read_bytes() == half
        return ended.stderr.replace("\n", " ")

    assert "`temperature` is 0.5, and was 0" in refusal("--temperature", "0.5")
    assert "`reproducible` is true, and was false" in refusal("--reproducible")
    assert "`include_token_ids` is true, and was false" in refusal("--token-ids")
    changed = json.loads(note.read_bytes()) | {"artifact_id": "0" * 16}
    kept = note.read_bytes()
    note.write_text(json.dumps(changed))
    assert f"and was `{'0' * 16}`" in refusal()
    note.write_text("{}")
    assert "nothing says which job left `out.jsonl`" in refusal()
    note.write_bytes(kept)
    prompts.write_bytes(prompts.read_bytes() + b'{"prompt": "one more"}\n')
    assert "the prompts file has changed" in refusal()


def test_what_cannot_go_on_is_refused(llama: Compiled, empty_state: Path) -> None:
    Path("prompts").write_bytes(prompts_with_bad_lines())
    Path("notes").write_bytes(b"my notes\n")
    command = ["run", "--artifact", llama.artifact, "--prompts", "prompts", "--resume"]
    ended = run_cli(*command, "-o", "notes")
    assert ended.code == 1 and "`notes` is not what a job of these prompts left" in ended.stderr
    assert Path("notes").read_bytes() == b"my notes\n"
    assert run_cli(*command).code == 2
    assert run_cli(*command, "-o", "new", "--force").code == 2
    assert not Path("new").exists()
