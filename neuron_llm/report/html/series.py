"""What charts draw: named values, and marks along an axis. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """Values with a name.

    Attributes:
        label: for the legend.
        style: CSS class.
        points: x and y of each.
    """

    label: str
    style: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Edges:
    """Marks along the x axis.

    Attributes:
        label: for the legend.
        style: CSS class.
        values: where they are.
    """

    label: str
    style: str
    values: Sequence[int]
