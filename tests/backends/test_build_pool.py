"""Builds that fail, are killed, or succeed on the second try."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from neuron_llm.backends.build_pool import BuildTask, build_all
from neuron_llm.backends.protocol import BuildEvent
from neuron_llm.errors import CompileError


def _succeed(marker: str) -> None:
    Path(marker).write_text("done")


def _fail(text: str) -> None:
    raise ValueError(text)


def _be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _succeed_second_time(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        sys.exit(3)


def run(tasks: list[BuildTask]) -> list[BuildEvent]:
    events: list[BuildEvent] = []
    build_all(tasks, num_jobs=2, preload=[], on_event=events.append)
    return events


def test_a_failing_build_is_named_with_its_log_and_takes_no_other_with_it(tmp_path: Path) -> None:
    log = tmp_path / "bad.log"
    events: list[BuildEvent] = []
    tasks = [
        BuildTask("prefill_t8", _fail, ("no such operator",), log),
        BuildTask("decode_b1_c64", _succeed, (str(tmp_path / "ok"),), tmp_path / "ok.log"),
    ]
    with pytest.raises(CompileError) as caught:
        build_all(tasks, num_jobs=2, preload=[], on_event=events.append)
    assert "1 of 2 graphs" in caught.value.message
    assert "prefill_t8: the compiler ended with exit code 1" in caught.value.message
    assert str(log) in caught.value.message
    assert "ValueError: no such operator" in log.read_text()
    assert (tmp_path / "ok").read_text() == "done"
    assert [e.status for e in events if e.graph == "prefill_t8"] == [
        "started", "retried", "started", "failed",
    ]  # fmt: skip
    assert [e.status for e in events if e.graph == "decode_b1_c64"] == ["started", "built"]


def test_a_build_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    task = BuildTask("g", _succeed_second_time, (str(tmp_path / "m"),), tmp_path / "log")
    assert [event.status for event in run([task])] == ["started", "retried", "started", "built"]


def test_a_killed_compiler_is_explained(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="killed, probably for want of host memory"):
        run([BuildTask("g", _be_killed, (), tmp_path / "log")])
