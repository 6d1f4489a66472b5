"""The log of a run: what was written is read, and nothing half written ever takes its place."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_factory import BUCKETS, decode_step, prefill_step, steps

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.run.run_log_reader import RunLogReader
from neuron_llm.runtime.run_log import RunHeader, RunLogWriter, last_run_path
from neuron_llm.scheduler.step_record import StepRecord

HEADER = RunHeader("0123abcd", "2030-01-01T00:00:00+00:00")
STEPS = [prefill_step(5, size=8, cached=4), decode_step(9, 7, size=2, room=128)]


def write_log(path: Path, recorded: list[StepRecord]) -> RunLogWriter:
    with RunLogWriter(path, HEADER) as log:
        for step in recorded:
            log.write(step)
    return log


def read_log(path: Path) -> tuple[RunHeader, list[StepRecord]]:
    with RunLogReader(path, HEADER.artifact_id, BUCKETS.all) as log:
        return log.header, list(log)


def test_log_lies_in_the_folder_of_its_artifact() -> None:
    assert last_run_path("0123abcd") == Path(".neuron-llm/runs/0123abcd/last_run.jsonl")


@given(st.lists(steps(), min_size=1, max_size=20))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, recorded: list[StepRecord]
) -> None:
    path = tmp_path_factory.mktemp("log") / "runs" / "last_run.jsonl"
    assert write_log(path, recorded).failure is None
    assert read_log(path) == (HEADER, recorded)


def test_run_that_fails_leaves_the_log_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, STEPS)
    with pytest.raises(KeyboardInterrupt), RunLogWriter(path, HEADER) as log:
        log.write(STEPS[0])
        raise KeyboardInterrupt
    assert read_log(path) == (HEADER, STEPS)
    assert list(tmp_path.iterdir()) == [path]


def test_run_without_steps_leaves_the_log_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, [])
    assert not path.exists()
    write_log(path, STEPS)
    write_log(path, [])
    assert read_log(path) == (HEADER, STEPS)
    assert list(tmp_path.iterdir()) == [path]


def test_log_appears_only_when_the_run_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    with RunLogWriter(path, HEADER) as log:
        log.write(STEPS[0])
        assert not path.exists()
    assert path.exists()


def test_log_of_a_killed_run_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, STEPS)
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from neuron_llm.runtime.run_log import RunHeader, RunLogWriter;"
        "RunLogWriter(Path(sys.argv[1]), RunHeader('a', 'b')).__enter__();"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    assert read_log(path) == (HEADER, STEPS)
    write_log(path, STEPS[:1])
    assert list(tmp_path.iterdir()) == [path]
    assert read_log(path) == (HEADER, STEPS[:1])


def test_log_of_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    with RunLogWriter(path, HEADER) as slow:
        write_log(path, STEPS)
        slow.write(STEPS[1])
    assert slow.failure is None
    assert read_log(path) == (HEADER, STEPS[1:])


def test_directory_that_cannot_be_made_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    log = write_log(tmp_path / "state" / "last_run.jsonl", STEPS)
    assert isinstance(log.failure, NotADirectoryError | FileExistsError)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, STEPS)
    with RunLogWriter(path, HEADER) as log:
        assert log._file is not None
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, log._file.fileno())
        os.close(full)
        for _ in range(1000):
            log.write(STEPS[0])
    assert log.failure is not None
    assert log.failure.errno == errno.ENOSPC
    assert read_log(path) == (HEADER, STEPS)
    assert list(tmp_path.iterdir()) == [path]


def test_log_of_the_version_before_knows_no_times_in_the_queue(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, STEPS)
    text = path.read_text().replace('"schema_version":2', '"schema_version":1')
    path.write_text(text.replace(',"queue_seconds":null', ""))
    assert "queue" not in path.read_text()
    assert read_log(path) == (HEADER, STEPS)


def test_time_in_the_queue_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    waited = [replace(STEPS[0], queue_seconds=0.125), STEPS[1]]
    write_log(path, waited)
    assert read_log(path) == (HEADER, waited)
    path.write_text(path.read_text().replace("0.125", "-1"))
    with pytest.raises(NeuronLLMError, match="line 2 is damaged"):
        read_log(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "its first line is damaged"),
        ("[1]\n", "its first line is damaged"),
        ('{"schema_version":1,"artifact_id":"a"}\n', "its first line is damaged"),
        ('{"schema_version":1,"artifact_id":"0123abcd","started_at":7}\n', "first line is damaged"),
        ('{"schema_version":1,"artifact_id":"0123abcd","started_at":"x"}\n', "line is damaged"),
        ("[" * 100_000, "its first line is damaged"),
        (
            '{"schema_version":1,"artifact_id":"other","started_at":"2030-01-01"}\n',
            "it is of the artifact `other`, not `0123abcd`",
        ),
        ('{"schema_version":3}\n', "its schema version is `3`, not `2`"),
        ('{"schema_version":true}\n', "its schema version is `True`, not `2`"),
    ],
)
def test_header_that_cannot_be_used_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "last_run.jsonl"
    path.write_text(content)
    with pytest.raises(NeuronLLMError) as caught:
        RunLogReader(path, HEADER.artifact_id, BUCKETS.all)
    assert caught.value.message.endswith(reason)
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "line", ["{", '{"bucket":{"num_tokens":8}}', '{"bucket":8}', "7", '{"num_tokens":8}']
)
def test_line_that_cannot_be_used_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, STEPS)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(NeuronLLMError, match="line 4 is damaged"):
        read_log(path)


PREFILL = {
    "bucket": {"num_tokens": 8},
    "num_seqs": 1,
    "num_tokens": 5,
    "num_context_tokens": 5,
    "num_cached_tokens": 0,
    "seconds": 0.5,
}


@pytest.mark.parametrize(
    "changed",
    [
        {"num_tokens": "5"},
        {"num_tokens": 9},
        {"num_seqs": -1},
        {"num_cached_tokens": 1.5},
        {"num_cached_tokens": 10**400},
        {"num_context_tokens": True},
        {"num_context_tokens": [[]]},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": None},
        {"bucket": {"num_tokens": [8]}},
        {"bucket": {"batch_size": 2, "max_context_tokens": 128}, "num_seqs": 3},
    ],
)
def test_line_that_no_step_can_have_written_is_refused(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, STEPS)
    sound = path.read_text() + json.dumps(PREFILL) + "\n"
    path.write_text(sound)
    assert read_log(path)[1][-1] == prefill_step(5, size=8)
    path.write_text(sound + json.dumps({**PREFILL, **changed}) + "\n")
    with pytest.raises(NeuronLLMError, match="line 5 is damaged"):
        read_log(path)


@pytest.mark.parametrize("line", [b"[" * 100_000, b"\xff\xfe\n", b"9" * 5000])
def test_line_that_no_reader_takes_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, STEPS)
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(NeuronLLMError, match="line 4 is damaged") as caught:
        read_log(path)
    assert caught.value.hint is not None and caught.value.hint.startswith("delete it, or run again")


def test_step_of_a_graph_that_the_artifact_lacks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last_run.jsonl"
    write_log(path, [*STEPS, prefill_step(5, size=32)])
    with pytest.raises(NeuronLLMError, match="line 4 is of the graph `prefill_t32`, which the"):
        read_log(path)


def test_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NeuronLLMError, match="no such file or directory"):
        RunLogReader(tmp_path / "last_run.jsonl", HEADER.artifact_id, BUCKETS.all)
