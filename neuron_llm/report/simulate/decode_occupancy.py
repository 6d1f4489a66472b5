"""How many requests decode together, and how long they wait for prefills. Knows no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from neuron_llm.compile.config.bucket_rules import CONTEXT_BUCKET_MULTIPLE
from neuron_llm.scheduler.block_pool import ceil_div


class DecodeShape(NamedTuple):
    """What a decode step needs of a graph.

    Attributes:
        num_seqs: rows.
        context_tokens: tokens of the longest row, its own included, rounded up to a multiple of
            `CONTEXT_BUCKET_MULTIPLE`: no context bucket can tell more than that.
    """

    num_seqs: int
    context_tokens: int


class DecodeOccupancy:
    """Counts decode steps by their shape.

    Attributes:
        counts: steps by shape.
    """

    def __init__(self) -> None:
        self.counts: Counter[DecodeShape] = Counter()

    def add(self, num_seqs: int, longest: int, num_steps: int = 1) -> None:
        """Count steps of so many rows, the longest of which has so many tokens."""
        rounded = ceil_div(longest, CONTEXT_BUCKET_MULTIPLE) * CONTEXT_BUCKET_MULTIPLE
        self.counts[DecodeShape(num_seqs, rounded)] += num_steps

    @property
    def num_steps(self) -> int:
        """All decode steps."""
        return self.counts.total()

    @property
    def by_num_seqs(self) -> Mapping[int, int]:
        """Steps by number of rows, ascending."""
        return self._sums(0)

    @property
    def by_context(self) -> Mapping[int, int]:
        """Steps by the longest row's rounded tokens, ascending."""
        return self._sums(1)

    @property
    def mean_num_seqs(self) -> float | None:
        """Rows of a decode step on average; None without any."""
        num_rows = sum(shape.num_seqs * num for shape, num in self.counts.items())
        return num_rows / self.num_steps if self.num_steps else None

    def to_json(self) -> dict[str, Any]:
        """Return the histograms of rows, of contexts and of both as JSON keys and values."""
        return {
            "num_decode_steps": self.num_steps,
            "mean_num_seqs": self.mean_num_seqs,
            "num_seqs": [
                {"num_seqs": num_seqs, "num_steps": num}
                for num_seqs, num in self.by_num_seqs.items()
            ],
            "context_tokens": [
                {"context_tokens": context, "num_steps": num}
                for context, num in self.by_context.items()
            ],
            "shapes": [
                {**shape._asdict(), "num_steps": num} for shape, num in sorted(self.counts.items())
            ],
        }

    def _sums(self, axis: int) -> dict[int, int]:
        sums: Counter[int] = Counter()
        for shape, num_steps in self.counts.items():
            sums[shape[axis]] += num_steps
        return dict(sorted(sums.items()))


@dataclass(frozen=True, slots=True)
class DecodeStall:
    """Prefill steps in a row while a request had its next token to wait for.

    Attributes:
        started_s: when the first of them began.
        seconds: until the last of them ended.
        num_prefills: how many they were, chunks counted one by one.
        num_seqs: requests that waited from the first of them on.
    """

    started_s: float
    seconds: float
    num_prefills: int
    num_seqs: int

    def to_json(self) -> dict[str, Any]:
        """Return the stall as JSON keys and values."""
        return {
            "started_s": self.started_s,
            "duration_ms": self.seconds * 1e3,
            "num_prefills": self.num_prefills,
            "num_seqs": self.num_seqs,
        }


class StallWatch:
    """Finds the longest stall of a run.

    Attributes:
        longest: the first of the longest stalls; None as long as no decode has had to wait.
    """

    def __init__(self) -> None:
        self.longest: DecodeStall | None = None
        self._current: DecodeStall | None = None

    def add_prefill(self, started_s: float, ended_s: float, num_decoding: int) -> None:
        """Note a prefill step, and how many requests had their next token to wait for."""
        if not num_decoding:
            return
        stall = self._current or DecodeStall(started_s, 0.0, 0, num_decoding)
        self._current = DecodeStall(
            stall.started_s, ended_s - stall.started_s, stall.num_prefills + 1, stall.num_seqs
        )
        if self.longest is None or self._current.seconds > self.longest.seconds:
            self.longest = self._current

    def add_decode(self) -> None:
        """Note a decode step: it serves all that waited."""
        self._current = None
