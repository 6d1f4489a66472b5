"""The axes of a chart: from values to coordinates, and round numbers to write along them.

Knows no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True)
class Axis:
    """A linear scale that begins at 0.

    Attributes:
        maximum: the value at the end.
        start: coordinate of 0.
        end: coordinate of `maximum`.
        num_ticks: about so many round numbers.
        is_whole: ticks are whole numbers.
    """

    maximum: float
    start: float
    end: float
    num_ticks: int = 5
    is_whole: bool = False

    def __call__(self, value: float) -> float:
        """Return a value's coordinate; one beyond the end lies at the end."""
        share = min(value / self.maximum, 1.0) if self.maximum > 0 else 0.0
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round numbers from 0 to the maximum, equally far apart: 0, 50, 100, 150 up to 187."""
        if self.maximum <= 0:
            return [0.0]
        rough = self.maximum / self.num_ticks
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in _STEPS if each * power >= rough * (1 - 1e-9))
        if self.is_whole:
            step = max(step, 1.0)
        return [index * step for index in range(int(self.maximum / step + 1e-9) + 1)]


def short(value: float) -> str:
    """Return a number as it is written along an axis: 1500 is `1.5k`, 0.25 is `0.25`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
