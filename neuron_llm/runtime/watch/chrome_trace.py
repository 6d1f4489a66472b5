"""A run in the Chrome trace format, for chrome://tracing and ui.perfetto.dev. Knows no torch.

Each graph run is an event on the track `graph`, what the host does for the steps lies on the tracks
`host` and `sample`, and each request is an asynchronous event from its arrival to its end:

    graph    |prefill_t128|  |decode_b4_c1024|  |decode_b4_c1024|
    sample                |--|                |--|
    host  |schedule|prepare| |update|publish|schedule|prepare| ...
    requests |------- r0 -------------------------|

A step ahead, the graph's thread samples while the engine's works for other steps. Viewers drop one
of two events that overlap on a track, so sampling has its own.

The format is described in "Trace Event Format": an array of events whose closing bracket may be
missing, so that also what a killed process leaves can be read.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.watch.step_trace import Span, StepTrace
from neuron_llm.scheduler.buckets import PrefillBucket

_PROCESS_ID = 1
_GRAPH_TRACK, _HOST_TRACK, _SAMPLE_TRACK = 1, 2, 3
_EVENTS_PER_WRITE = 256


class ChromeTraceWriter(AbstractContextManager["ChromeTraceWriter"]):
    """Writes what an engine tells its observer; the file is whole however the block ends.

    A trace that can be written no further stops nobody: `failure` says why.

    Args:
        path: written anew.

    Attributes:
        failure: the first error of the operating system, or None.

    Raises:
        NeuronLLMError: the file cannot be written at all.
    """

    def __init__(self, path: Path) -> None:
        self.failure: OSError | None = None
        self._num_steps = 0
        self._origin: float | None = None
        self._pending: list[str] = []
        try:
            self._file: BinaryIO = path.open("wb", buffering=0)
        except OSError as error:
            raise NeuronLLMError(
                f"cannot write `{path}`: {(error.strerror or str(error)).lower()}",
                hint="give a file in a directory that exists and can be written with `--trace-out`",
            ) from error
        self._write_bytes("[\n" + _named("process_name", 0, "neuron-llm"))
        self._append(_named("thread_name", _GRAPH_TRACK, "graph"))
        self._append(_named("thread_name", _HOST_TRACK, "host"))
        self._append(_named("thread_name", _SAMPLE_TRACK, "sample"))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write what is left and close the array."""
        self._flush()
        self._write_bytes("\n]\n")
        self._file.close()

    def on_request_added(self, request_id: str, at: float) -> None:
        """Begin the request's event."""
        self._request("b", request_id, at, {})

    def on_first_token(self, request_id: str, at: float) -> None:
        """Mark the moment in the request's event."""
        self._request("n", request_id, at, {"token": 1})

    def on_request_ended(self, request_id: str, at: float, finish_reason: str) -> None:
        """End the request's event."""
        self._request("e", request_id, at, {"finish_reason": finish_reason})

    def on_step(self, trace: StepTrace) -> None:
        """Write the step's graph run and the host's work for it."""
        self._num_steps += 1
        self._complete(trace.graph, _GRAPH_TRACK, {"step": self._num_steps, **_arguments(trace)})
        for span in trace.host:
            track = _SAMPLE_TRACK if span.name == "sample" else _HOST_TRACK
            self._complete(span, track, {"step": self._num_steps})

    def _request(self, phase: str, request_id: str, at: float, arguments: dict[str, Any]) -> None:
        self._event(
            phase,
            f"request {request_id}",
            at,
            {"cat": "request", "id": request_id, "args": arguments},
        )

    def _complete(self, span: Span, track: int, arguments: dict[str, Any]) -> None:
        duration = round((span.ended - span.started) * 1e6, 3)
        self._event(
            "X", span.name, span.started, {"dur": duration, "tid": track, "args": arguments}
        )

    def _event(self, phase: str, name: str, at: float, fields: dict[str, Any]) -> None:
        if self._origin is None:
            self._origin = at
        timestamp = round((at - self._origin) * 1e6, 3)
        event = {"ph": phase, "name": name, "ts": timestamp, "pid": _PROCESS_ID, **fields}
        self._append(json.dumps(event, separators=(",", ":")))

    def _append(self, event: str) -> None:
        self._pending.append(event)
        if len(self._pending) >= _EVENTS_PER_WRITE:
            self._flush()

    def _flush(self) -> None:
        # Whole events in one write: a killed process leaves no half of one.
        self._write_bytes("".join(f",\n{event}" for event in self._pending))
        self._pending.clear()

    def _write_bytes(self, text: str) -> None:
        if self.failure is None:
            try:
                self._file.write(text.encode())
            except OSError as error:
                self.failure = error


def _named(kind: str, track: int, name: str) -> str:
    """Return the event that names the process or one of its tracks."""
    event = {"ph": "M", "name": kind, "pid": _PROCESS_ID, "tid": track, "args": {"name": name}}
    return json.dumps(event, separators=(",", ":"))


def _arguments(trace: StepTrace) -> dict[str, Any]:
    """Return what a step's event shows when it is clicked."""
    record, stats = trace.record, trace.stats
    bucket = record.bucket
    size = bucket.num_tokens if isinstance(bucket, PrefillBucket) else bucket.batch_size
    return {
        "bucket": bucket.name,
        "num_real_tokens": record.num_tokens,
        "num_padded_tokens": size - record.num_tokens,
        "num_seqs": record.num_seqs,
        "num_context_tokens": record.num_context_tokens,
        "state": stats.state.value,
        "running": stats.num_running,
        "hidden": stats.num_hidden,
        "waiting": stats.num_waiting,
        "held_back": stats.hold_reason.value if stats.hold_reason else None,
        "free_blocks": stats.num_free_blocks,
        "prefix_queries": stats.num_prefix_queries,
        "prefix_hits": stats.num_prefix_hits,
    }
