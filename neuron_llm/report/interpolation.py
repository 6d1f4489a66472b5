"""A value between, below and above known ones. Knows no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping


def interpolate(known: Mapping[int, float], size: int) -> float:
    """Return what a size would take, where some sizes are known to take so much.

    Between two known sizes it lies on the line through both. Outside, it lies on the line through
    the nearest two, as far as larger sizes take no less and time no more than in proportion: with
    10 at 100 and 14 at 200, it is 12 at 150, 8 at 50 and 18 at 300. With a single known size, it is
    the same below and in proportion above.

    Args:
        known: positive values by size, at least one.
        size: at least 1.
    """
    sizes = sorted(known)
    if size in known:
        return known[size]
    index = bisect_left(sizes, size)
    if len(sizes) == 1:
        return known[sizes[0]] * max(size / sizes[0], 1.0)
    left, right = sizes[max(min(index, len(sizes) - 1) - 1, 0) :][:2]
    slope = (known[right] - known[left]) / (right - left)
    value = known[left] + slope * (size - left)
    if index == 0:
        return min(max(value, known[left] * size / left), known[left])
    if index == len(sizes):
        return max(value, known[right])
    return value
