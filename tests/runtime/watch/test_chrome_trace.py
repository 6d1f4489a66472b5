from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from step_factory import decode_step, prefill_step

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.watch.chrome_trace import ChromeTraceWriter
from neuron_llm.runtime.watch.step_trace import Span, StepTrace
from neuron_llm.scheduler import HoldReason, SchedulerState, SchedulerStats
from neuron_llm.scheduler.step_record import StepRecord


def stats(**fields: Any) -> SchedulerStats:
    values: dict[str, Any] = {
        "state": SchedulerState.ACTIVE_DECODE,
        "num_running": 3,
        "num_waiting": 2,
        "num_hidden": 1,
        "hold_reason": HoldReason.KV,
        "num_free_blocks": 7,
        "num_scheduled_tokens": 3,
        "num_padded_tokens": 3,
        "num_prefix_queries": 0,
        "num_prefix_hits": 0,
    }
    return SchedulerStats(**{**values, **fields})


def trace(record: StepRecord, started: float, **fields: Any) -> StepTrace:
    graph = Span(record.bucket.name, started, started + record.seconds)
    host = (
        Span("schedule", started - 0.25, started - 0.125),
        Span("sample", graph.ended, graph.ended + 0.125),
    )
    return StepTrace(record, stats(**fields), graph, host)


def events(path: Path, phase: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text()) if event["ph"] == phase]


def test_a_step_is_an_event_on_the_graph_track_with_the_queues_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with ChromeTraceWriter(path) as writer:
        writer.on_step(trace(decode_step(100, 20, 9, size=4, room=128), started=10.25))
    graph, schedule, sample = events(path, "X")
    assert (graph["name"], graph["dur"]) == ("decode_b4_c128", 250_000)
    assert (schedule["name"], schedule["dur"]) == ("schedule", 125_000)
    assert graph["ts"] - schedule["ts"] == 250_000
    tracks = {event["tid"]: event["args"]["name"] for event in events(path, "M")}
    assert (tracks[graph["tid"]], tracks[schedule["tid"]]) == ("graph", "host")
    # The next step may be scheduled meanwhile, and events of a track must not overlap.
    assert tracks[sample["tid"]] == "sample"
    assert graph["args"] == {
        "step": 1,
        "bucket": "decode_b4_c128",
        "num_real_tokens": 3,
        "num_padded_tokens": 1,
        "num_seqs": 3,
        "num_context_tokens": 129,
        "state": "active_decode",
        "running": 3,
        "hidden": 1,
        "waiting": 2,
        "held_back": "too few free KV blocks",
        "free_blocks": 7,
        "prefix_queries": 0,
        "prefix_hits": 0,
    }


def test_a_prefill_shows_its_padding_and_its_prefix_hits(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with ChromeTraceWriter(path) as writer:
        step = prefill_step(11, size=16, cached=8)
        writer.on_step(trace(step, 1.0, hold_reason=None, num_prefix_queries=19, num_prefix_hits=8))
    arguments = events(path, "X")[0]["args"]
    assert (arguments["num_real_tokens"], arguments["num_padded_tokens"]) == (11, 5)
    assert (arguments["prefix_hits"], arguments["prefix_queries"]) == (8, 19)
    assert arguments["held_back"] is None


def test_a_request_is_an_asynchronous_event_from_its_arrival_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with ChromeTraceWriter(path) as writer:
        writer.on_request_added('r"1', 5.0)
        writer.on_first_token('r"1', 5.5)
        writer.on_request_ended('r"1', 6.0, "stop")
    (begin,), (first,), (end,) = (events(path, phase) for phase in "bne")
    assert [event["ts"] for event in (begin, first, end)] == [0, 500_000, 1_000_000]
    assert {(event["id"], event["name"]) for event in (begin, first, end)} == {
        ('r"1', 'request r"1')
    }
    assert end["args"] == {"finish_reason": "stop"}


def test_a_block_that_fails_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with pytest.raises(KeyboardInterrupt), ChromeTraceWriter(path) as writer:
        writer.on_request_added("r", 0.0)
        writer.on_step(trace(prefill_step(3, size=8), 1.0))
        raise KeyboardInterrupt
    assert len(events(path, "X")) == 3


def test_what_a_killed_process_leaves_lacks_only_the_bracket(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    writer = ChromeTraceWriter(path)
    for number in range(300):
        writer.on_step(trace(prefill_step(3, size=8), number))
    left = json.loads(path.read_text() + "]")
    assert 256 < len(left) < 900
    with writer:
        pass
    assert len(json.loads(path.read_text())) == 4 + 900


def test_a_file_that_cannot_be_made_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(NeuronLLMError, match=r"cannot write `.*nowhere/trace.json`: no such file"):
        ChromeTraceWriter(tmp_path / "nowhere" / "trace.json")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_stops_the_trace_and_nobody_else() -> None:
    with ChromeTraceWriter(Path("/dev/full")) as writer:
        writer.on_request_added("r", 0.0)
    assert writer.failure is not None
    assert writer.failure.strerror == "No space left on device"


def test_stats_are_one_line_that_says_why_somebody_waits() -> None:
    assert str(stats()) == (
        "active_decode, tokens 3 in 3, running 3 (1 hidden), waiting 2 (too few free KV blocks), "
        "free blocks 7, prefix hits 0 of 0"
    )
    assert "waiting 0, free" in str(stats(num_waiting=0, hold_reason=None))
