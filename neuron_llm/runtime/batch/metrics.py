"""Latency and throughput of a run, from the times of its tokens. Knows no torch.

The time in the queue is arrival to the begin of the first step that computes any of the request.
TTFT is arrival to first token, with the time in the queue. TPOT is the time from first to last
token divided by the tokens after the first, a value per request, and undefined for one token. ITL
is the gap between two successive tokens, a distribution over gaps. E2EL is arrival to last token.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from neuron_llm.runtime.batch.distribution import Distribution
from neuron_llm.runtime.engine.outputs import RequestTimes


@dataclass(frozen=True)
class RequestLatency:
    """How long one request took, in milliseconds.

    Attributes:
        ttft_ms: from arrival to the first token.
        tpot_ms: per token after the first; None where there is none.
        itls_ms: between each token and the one before it.
        e2el_ms: from arrival to the last token.
        queue_ms: from arrival to the begin of the first step; None if that was not noted.
    """

    ttft_ms: float
    tpot_ms: float | None
    itls_ms: tuple[float, ...]
    e2el_ms: float
    queue_ms: float | None

    @classmethod
    def of(cls, times: RequestTimes) -> RequestLatency:
        """Measure a request that got at least one token."""
        assert times.tokens, "a request without tokens has no latency"
        first, last = times.tokens[0], times.tokens[-1]
        started = times.first_scheduled
        num_later = len(times.tokens) - 1
        return cls(
            ttft_ms=(first - times.arrival) * 1e3,
            tpot_ms=(last - first) * 1e3 / num_later if num_later else None,
            itls_ms=tuple((later - earlier) * 1e3 for earlier, later in pairwise(times.tokens)),
            e2el_ms=(last - times.arrival) * 1e3,
            queue_ms=None if started is None else (started - times.arrival) * 1e3,
        )


@dataclass(frozen=True)
class LatencyTargets:
    """What a request must stay within to count as goodput; None demands nothing.

    Attributes:
        ttft_ms: the longest time to the first token.
        tpot_ms: the longest time per token after the first.
        e2el_ms: the longest time to the last token.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None

    def are_met_by(self, latency: RequestLatency) -> bool:
        """Whether the request stays within every target; a TPOT that is undefined does."""
        pairs = (
            (self.ttft_ms, latency.ttft_ms),
            (self.tpot_ms, latency.tpot_ms),
            (self.e2el_ms, latency.e2el_ms),
        )
        return all(target is None or value is None or value <= target for target, value in pairs)


class RunMetrics:
    """Adds up the requests of a run.

    Memory does not grow with the run: see `Distribution`.

    Args:
        targets: for goodput; None leaves it out.
    """

    def __init__(self, targets: LatencyTargets | None = None) -> None:
        self._targets = targets
        self._ttft, self._tpot = Distribution(), Distribution()
        self._itl, self._e2el, self._queue = Distribution(), Distribution(), Distribution()
        self._num_good = 0
        self.num_completed = 0
        self.num_failed = 0
        self.num_prompt_tokens = 0
        self.max_prompt_tokens = 0
        self.num_cached_tokens = 0
        self.num_output_tokens = 0

    def add(
        self, *completions: RequestTimes, num_prompt_tokens: int, num_cached_tokens: int = 0
    ) -> None:
        """Count a request that finished.

        Each completion has latencies of its own, save for the request's time in the queue; the
        request is within the targets if all are.

        Args:
            completions: of each, when the request came, when its tokens came, at least one, and
                when any of the request was first computed.
            num_prompt_tokens: tokens of its prompt.
            num_cached_tokens: how many of them were found in the prefix cache.
        """
        self.num_completed += 1
        self.num_prompt_tokens += num_prompt_tokens
        self.max_prompt_tokens = max(self.max_prompt_tokens, num_prompt_tokens)
        self.num_cached_tokens += num_cached_tokens
        latencies = [RequestLatency.of(times) for times in completions]
        if latencies[0].queue_ms is not None:
            self._queue.add(latencies[0].queue_ms)
        for latency, times in zip(latencies, completions, strict=True):
            self.num_output_tokens += len(times.tokens)
            self._ttft.add(latency.ttft_ms)
            self._e2el.add(latency.e2el_ms)
            if latency.tpot_ms is not None:
                self._tpot.add(latency.tpot_ms)
            for gap in latency.itls_ms:
                self._itl.add(gap)
        if self._targets is not None and all(map(self._targets.are_met_by, latencies)):
            self._num_good += 1

    def add_failure(self) -> None:
        """Count a request that ended with an error; it is in no latency and no throughput."""
        self.num_failed += 1

    def to_json(self, duration_s: float) -> dict[str, Any]:
        """Return everything, units in the keys, null where there is nothing to measure.

        Args:
            duration_s: wall time from the start of the run to its end.
        """
        report: dict[str, Any] = {
            "duration_s": duration_s,
            "num_completed": self.num_completed,
            "num_failed": self.num_failed,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_cached_tokens": self.num_cached_tokens,
            "num_output_tokens": self.num_output_tokens,
            "requests_per_s": _rate(self.num_completed, duration_s),
            "output_tokens_per_s": _rate(self.num_output_tokens, duration_s),
            "total_tokens_per_s": _rate(
                self.num_prompt_tokens + self.num_output_tokens, duration_s
            ),
        }
        if self._targets is not None:
            report["goodput_requests_per_s"] = _rate(self._num_good, duration_s)
        for name, distribution in (
            ("queue_ms", self._queue),
            ("ttft_ms", self._ttft),
            ("tpot_ms", self._tpot),
            ("itl_ms", self._itl),
            ("e2el_ms", self._e2el),
        ):
            report[name] = distribution.to_json()
        return report


def _rate(count: int, duration_s: float) -> float | None:
    return count / duration_s if duration_s > 0 else None
