"""Mean, greatest and percentiles of values that come one at a time. Knows no torch."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterable

MAX_SAMPLES = 1_000_000

PERCENTS = (50, 90, 99)
"""Which percentiles a document has."""


class Distribution:
    """A collection of numbers in bounded memory.

    Count, greatest, sum and so the mean are exact. Percentiles are exact up to `max_samples`
    values, and beyond that those of a uniform random sample of so many.

    Args:
        max_samples: the most values to keep, eight bytes each.

    Attributes:
        num_values: how many there have been.
        maximum: the greatest; None without values.
    """

    def __init__(self, values: Iterable[float] = (), *, max_samples: int = MAX_SAMPLES) -> None:
        self._max_samples = max_samples
        self._samples = array("d")
        self._random = random.Random(0)
        self._sum = 0.0
        self.num_values = 0
        self.maximum: float | None = None
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Add one value."""
        self.num_values += 1
        self._sum += value
        self.maximum = value if self.maximum is None else max(self.maximum, value)
        if len(self._samples) < self._max_samples:
            self._samples.append(value)
            return
        # Reservoir sampling: every value so far is kept with the same probability.
        index = self._random.randrange(self.num_values)
        if index < self._max_samples:
            self._samples[index] = value

    @property
    def mean(self) -> float | None:
        """The average; None without values."""
        return self._sum / self.num_values if self.num_values else None

    def percentiles(self, percents: Iterable[float]) -> list[float | None]:
        """Return each percentile, interpolated between the two nearest values; None without any.

        Of [1, 2, 3, 4] the 50th is 2.5: position 0.5 * 3 = 1.5 lies half way from 2 to 3.
        """
        ordered = sorted(self._samples)
        return [_percentile(ordered, percent) if ordered else None for percent in percents]

    def to_json(self) -> dict[str, float | None]:
        """Return mean, percentiles and greatest as JSON keys and values, null without values."""
        names = [f"p{percent}" for percent in PERCENTS]
        percentiles = dict(zip(names, self.percentiles(PERCENTS), strict=True))
        return {"mean": self.mean, **percentiles, "max": self.maximum}


def _percentile(ordered: list[float], percent: float) -> float:
    position = percent / 100 * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
