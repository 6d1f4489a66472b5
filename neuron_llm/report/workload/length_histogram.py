"""How often each length occurs, of prompts or of whatever else is counted in tokens.

Knows no torch.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass(frozen=True)
class LengthBin:
    """The lengths of a range.

    Attributes:
        min_tokens: the shortest length that belongs in it.
        max_tokens: the longest one.
        num_lengths: how many do.
    """

    min_tokens: int
    max_tokens: int
    num_lengths: int


class LengthHistogram:
    """A multiset of lengths.

    Args:
        counts: how often each length, at least 1, occurs, at least once.

    Attributes:
        counts: the same, ascending by length.
        num_lengths: how many lengths there are, each as often as it occurs.
        num_tokens: their sum.
    """

    def __init__(self, counts: Mapping[int, int]) -> None:
        self.counts = dict(sorted(counts.items()))
        assert all(length >= 1 and count >= 1 for length, count in self.counts.items())
        self.num_lengths = sum(self.counts.values())
        self.num_tokens = sum(length * count for length, count in self.counts.items())
        self._lengths = list(self.counts)
        self._num_up_to = list(accumulate(self.counts.values()))

    @classmethod
    def of(cls, lengths: Iterable[int]) -> LengthHistogram:
        """Return the histogram of these lengths."""
        return cls(Counter(lengths))

    @property
    def longest(self) -> int:
        """The greatest length; 0 without any."""
        return self._lengths[-1] if self._lengths else 0

    def num_above(self, limit: int) -> int:
        """Return how many lengths are greater than `limit`."""
        index = bisect_left(self._lengths, limit + 1)
        return self.num_lengths - (self._num_up_to[index - 1] if index else 0)

    def percentile(self, percent: float) -> int:
        """Return the least length that `percent` of the lengths do not exceed; 0 without any.

        Of 1, 2, 3, 4 the 50th is 2 and the 51st is 3: a length that occurs, no mean of two.
        """
        if not self._lengths:
            return 0
        rank = max(math.ceil(percent / 100 * self.num_lengths), 1)
        return self._lengths[bisect_left(self._num_up_to, rank)]

    def chunked(self, max_chunk_tokens: int) -> LengthHistogram:
        """Return the lengths of the chunks that prompts of these lengths are computed in.

        With 512, a prompt of 1200 tokens becomes chunks of 512, 512 and 176.
        """
        if self.longest <= max_chunk_tokens:
            return self
        chunks: Counter[int] = Counter()
        for length, count in self.counts.items():
            num_full, num_rest = divmod(length, max_chunk_tokens)
            if num_full:
                chunks[max_chunk_tokens] += num_full * count
            if num_rest:
                chunks[num_rest] += count
        return LengthHistogram(chunks)

    def bins(self, edges: Sequence[int]) -> list[LengthBin]:
        """Return how many lengths each range holds: above one edge, and up to the next.

        Edges 8 and 16 make the ranges 1-8 and 9-16, and one more up to the longest if that is
        longer. Every length is in exactly one.

        Args:
            edges: ascending, at least 1.
        """
        ends = [*edges, self.longest] if not edges or self.longest > edges[-1] else list(edges)
        return [
            LengthBin(start + 1, end, self.num_above(start) - self.num_above(end))
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return sums and percentiles as JSON keys and values."""
        return {
            "num_lengths": self.num_lengths,
            "num_tokens": self.num_tokens,
            **{f"p{percent}_tokens": self.percentile(percent) for percent in (50, 90, 99)},
            "max_tokens": self.longest,
        }
