"""What a simulated run came to, and when each token of its requests came. Knows no torch."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuron_llm.report.run.padding import PaddingAccount
from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.report.simulate.decode_occupancy import DecodeOccupancy, DecodeStall
from neuron_llm.report.simulate.timeline import Timeline
from neuron_llm.report.step_time.step_times import StepTime, StepTimeSource
from neuron_llm.report.workload.arrivals import RefusedRequest
from neuron_llm.runtime.batch.distribution import Distribution
from neuron_llm.runtime.batch.metrics import RunMetrics
from neuron_llm.runtime.engine.outputs import RequestTimes
from neuron_llm.scheduler import Request
from neuron_llm.scheduler.buckets import Bucket


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A workload under one candidate.

    Attributes:
        candidate: what was simulated.
        step_times: of each graph, as it was counted.
        is_prefix_caching: whether requests shared the KV of equal beginnings: if the candidate has
            it so, and the trace says what prompts share.
        duration_s: from the first arrival of the trace to the end of the last step.
        metrics: latencies and throughput of the requests that ran.
        queue_ms: from each request's arrival to the begin of its first step.
        account: real, padded and cached tokens by graph; its seconds are those of `step_times`.
        occupancy: decode steps by rows and context.
        longest_stall: the longest time for which requests that decode waited for prefills; None if
            none ever did.
        timeline: queues and KV blocks over time.
        refused: requests that could never run, and are in nothing else, by arrival.
        num_cut_outputs: requests that `max_model_len` ended.
        num_assumed_outputs: requests, refused ones included, whose output was assumed.
    """

    candidate: Candidate
    step_times: Mapping[Bucket, StepTime]
    is_prefix_caching: bool
    duration_s: float
    metrics: RunMetrics
    queue_ms: Distribution
    account: PaddingAccount
    occupancy: DecodeOccupancy
    longest_stall: DecodeStall | None
    timeline: Timeline
    refused: tuple[RefusedRequest, ...]
    num_cut_outputs: int
    num_assumed_outputs: int

    @property
    def num_steps(self) -> int:
        """Steps of both phases."""
        return self.account.total.num_uses

    @property
    def estimated(self) -> tuple[Bucket, ...]:
        """Graphs that ran, and whose time is only estimated from those of others."""
        return tuple(
            bucket
            for bucket, counts in self.account.by_bucket.items()
            if counts.num_uses and self.step_times[bucket].source is StepTimeSource.ESTIMATED
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything but the timeline's stretches as JSON keys and values."""
        total = self.timeline.total
        return {
            "name": self.candidate.name,
            "num_graphs": len(self.candidate.buckets.all),
            "is_prefix_caching": self.is_prefix_caching,
            **self.metrics.to_json(self.duration_s),
            "queue_ms": self.queue_ms.to_json(),
            "num_steps": self.num_steps,
            "busy_s": self.account.total.seconds,
            "longest_stall": self.longest_stall and self.longest_stall.to_json(),
            "num_kv_blocks": self.candidate.scheduler.num_blocks - 1,
            "mean_used_kv_blocks": total.mean.num_used_blocks,
            "max_used_kv_blocks": total.greatest.num_used_blocks,
            "num_cut_outputs": self.num_cut_outputs,
            "num_assumed_outputs": self.num_assumed_outputs,
            "num_refused": len(self.refused),
            "refused": [request.to_json() for request in self.refused],
            "padding": self.account.to_json(),
            "step_times": [
                {"graph": bucket.name, "ms": time.seconds * 1e3, "source": time.source.value}
                for bucket, time in self.step_times.items()
            ],
            "occupancy": self.occupancy.to_json(),
        }


class TokenTimes:
    """Notes when steps end.

    A decode step serves every request that decodes. So the times of all tokens but the first are a
    stretch of the one list of times at which decode steps ended, and are not kept for each request.
    """

    def __init__(self) -> None:
        self._decode_ends = array("d")
        self._first_tokens: dict[str, tuple[float, int]] = {}

    @property
    def num_decoding(self) -> int:
        """Requests that have their first token and not their last."""
        return len(self._first_tokens)

    def end_prefill(self, req_id: str, now_s: float) -> None:
        """Note that a request's prompt has been computed, which gives its first token."""
        self._first_tokens[req_id] = (now_s, len(self._decode_ends))

    def end_decode(self, now_s: float) -> None:
        """Note that a decode step has given each decoding request a token."""
        self._decode_ends.append(now_s)

    def finish(self, request: Request) -> RequestTimes:
        """Forget a request that has just got its last token; return when its tokens came."""
        first, num_before = self._first_tokens.pop(request.request_id)
        tokens = (first, *self._decode_ends[num_before:])
        assert len(tokens) == request.num_output_tokens, "a decode step left a request out"
        return RequestTimes(request.arrival_time, tokens)
