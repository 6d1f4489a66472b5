"""How many requests decode together, and how long the longest of them is. Knows no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
