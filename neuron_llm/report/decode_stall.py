"""How long requests that decode are kept waiting by prefills. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
