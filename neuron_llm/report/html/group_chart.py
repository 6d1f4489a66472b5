"""Bars side by side in groups. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_llm.report.html.axis import short
from neuron_llm.report.html.chart import (
    BASE,
    LEFT,
    RIGHT,
    WIDTH,
    TableData,
    Words,
    figure,
    frame,
    text,
    y_axis,
)
from neuron_llm.report.html.markup import Markup, element
from neuron_llm.report.html.series import Series

_FILLED = 0.84


def group_chart(words: Words, name: str, groups: Sequence[str], series: Sequence[Series]) -> Markup:
    """Return a bar of each series in each group.

    Args:
        words: what it says.
        name: unlike that of any other figure of the page.
        groups: their labels.
        series: at least one; a point's x is the index of its group.
    """
    # Above the tallest bar its number is written.
    y = y_axis(1.08 * max(value for each in series for _, value in each.points))
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    width = room * _FILLED / len(series)
    shapes = [frame(words, None, y)]
    for index, label in enumerate(groups):
        shapes.append(text(label, LEFT + (index + 0.5) * room, BASE + 16))
    for number, each in enumerate(series):
        for at, value in each.points:
            left = LEFT + (at + (1 - _FILLED) / 2) * room + number * width
            top = y(value)
            bar = element(
                "rect",
                element("title", f"{each.label}, {groups[int(at)]}: {short(value)}"),
                x=left,
                y=top,
                width=width - 3,
                height=BASE - top,
                class_=each.style,
            )
            shapes += [bar, text(short(value), left + width / 2 - 1.5, top - 4)]
    rows = [[each.label, *(f"{value:.3f}" for _, value in each.points)] for each in series]
    return figure(
        words,
        name,
        shapes,
        TableData(["graphs", *groups], rows),
        legend=[(each.style, each.label) for each in series],
    )
