"""Faults of long batch jobs: lines that are read, or records that are kept, all at once."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Compiled

from neuron_llm import LLM
from neuron_llm.runtime.batch import batch
from neuron_llm.runtime.batch.batch import BatchOptions, run_batch
from neuron_llm.runtime.batch.observer import BatchProgress
from neuron_llm.runtime.batch.prompt_line import BadLine, PromptLine, parse_line
from neuron_llm.runtime.batch.records import OrderedRecordWriter
from neuron_llm.runtime.engine.engine import Engine

GREEDY_JOB = BatchOptions({"temperature": 0, "ignore_eos": True}, {})
MAX_STARTED = 2 * 4
"""Two requests for each of the four slots of the tiny Llama: one runs, one waits."""


@pytest.fixture(scope="module")
def engine(llama: Compiled) -> Engine:
    return LLM(llama.artifact).engine


class WatchedJob:
    """A job that remembers how far its lines were read ahead of the records that are written."""

    def __init__(self, engine: Engine, lines: list[dict[str, Any]]) -> None:
        self.stream = io.BytesIO()
        self.num_read = self.num_done = 0
        self.most_in_flight = self.most_unwritten = 0
        self._lines = lines
        writer = OrderedRecordWriter(self.stream)
        run_batch(engine, self._read(), writer, GREEDY_JOB, self._on_progress)

    def _read(self) -> Iterator[PromptLine | BadLine]:
        for index, line in enumerate(self._lines):
            self.num_read += 1
            num_written = self.stream.getvalue().count(b"\n")
            self.most_in_flight = max(self.most_in_flight, self.num_read - self.num_done)
            self.most_unwritten = max(self.most_unwritten, self.num_read - num_written)
            yield parse_line(json.dumps(line).encode(), index, index + 1)

    def _on_progress(self, progress: BatchProgress) -> None:
        self.num_done = progress.num_done


def test_a_line_is_read_when_there_is_room_for_it(engine: Engine) -> None:
    """The fault: a job of many lines is in memory as a whole before its first step."""
    job = WatchedJob(engine, [{"prompt": [n % 250], "max_tokens": 1 + n % 3} for n in range(120)])
    assert (job.num_read, job.num_done) == (120, 120)
    assert job.most_in_flight == MAX_STARTED


@pytest.mark.parametrize("max_held", [1, 5])
def test_few_records_wait_for_an_earlier_line(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, max_held: int
) -> None:
    """The fault: one long answer at the front, and every other one is kept until it ends."""
    monkeypatch.setattr(batch, "MAX_HELD_RECORDS", max_held)
    lines = [{"prompt": [n], "max_tokens": 50 if n == 0 else 1} for n in range(40)]
    job = WatchedJob(engine, lines)
    records = [json.loads(line) for line in job.stream.getvalue().splitlines()]
    assert [record["index"] for record in records] == list(range(40))
    assert [record["num_output_tokens"] for record in records] == [50] + [1] * 39
    # What has started may still end and be held, too.
    assert MAX_STARTED <= job.most_unwritten <= MAX_STARTED + max_held


def test_lines_that_cannot_run_leave_nothing_in_memory(engine: Engine) -> None:
    """The fault: memory that grows with the number of lines."""
    lines = (
        parse_line(json.dumps({"prompt": "x" * 2000, "max_tokens": -1}).encode(), n, n + 1)
        for n in range(4000)
    )
    with open("/dev/null", "wb") as stream:
        tracemalloc.start()
        result = run_batch(engine, lines, OrderedRecordWriter(stream), GREEDY_JOB, lambda _: None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (result.num_ok, result.num_failed) == (0, 4000)
    assert peak < 500_000  # of 8 MB
