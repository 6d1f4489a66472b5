"""Bars of two parts, the second of which is waste. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuron_llm.report.html.chart import TOP, WIDTH, TableData, Words, figure, text
from neuron_llm.report.html.markup import Markup, element

_ROW_HEIGHT = 26
_BAR_HEIGHT = 18
_NAME_WIDTH = 140
_SHARE_WIDTH = 56


@dataclass(frozen=True)
class ShareRow:
    """A bar of two parts.

    Attributes:
        label: what it is of.
        real: the first part.
        padded: the second part.
    """

    label: str
    real: int
    padded: int

    @property
    def share(self) -> str:
        """The second part's share in words."""
        total = self.real + self.padded
        return f"{self.padded / total:.1%}" if total else "unused"


def share_chart(words: Words, name: str, rows: Sequence[ShareRow]) -> Markup:
    """Return a bar for each row, as long as its sum, the second part in another colour.

    Args:
        words: what it says.
        name: unlike that of any other figure of the page.
        rows: at least one.
    """
    most = max(row.real + row.padded for row in rows) or 1
    per_token = (WIDTH - _NAME_WIDTH - _SHARE_WIDTH) / most
    shapes = [
        shape
        for index, row in enumerate(rows)
        for shape in _bar(row, TOP + index * _ROW_HEIGHT, per_token)
    ]
    cells = [[row.label, str(row.real), str(row.padded), row.share] for row in rows]
    return figure(
        words,
        name,
        shapes,
        TableData(["graph", "real tokens", "padding", "waste"], cells),
        legend=[("bar", "real tokens"), ("waste", "padding, and its share")],
        height=2 * TOP + len(rows) * _ROW_HEIGHT,
    )


def _bar(row: ShareRow, top: float, per_token: float) -> list[Markup]:
    split = _NAME_WIDTH + row.real * per_token
    end = split + row.padded * per_token
    middle = top + _BAR_HEIGHT / 2 + 4
    height = _BAR_HEIGHT
    return [
        text(row.label, _NAME_WIDTH - 8, middle, anchor="end"),
        element(
            "rect", x=_NAME_WIDTH, y=top, width=split - _NAME_WIDTH, height=height, class_="bar"
        ),
        element("rect", x=split, y=top, width=end - split, height=height, class_="waste"),
        text(row.share, end + 6, middle, anchor="start"),
    ]
