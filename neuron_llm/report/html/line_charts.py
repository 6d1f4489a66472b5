"""Lines: a curve with points beside it, and values over time. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_llm.report.html.axis import Axis, short
from neuron_llm.report.html.chart import TableData, Words, figure, frame, x_axis, y_axis
from neuron_llm.report.html.markup import Markup, element
from neuron_llm.report.html.series import Series

_NUM_TABLE_ROWS = 20


def curve_chart(words: Words, name: str, curve: Series, marks: Sequence[Series]) -> Markup:
    """Return a curve over whole numbers, and single points that are compared with it.

    Args:
        words: what it says.
        name: unlike that of any other figure of the page.
        curve: at least one point.
        marks: of one point each, or more.
    """
    every = [point for series in (curve, *marks) for point in series.points]
    x = x_axis(max(at for at, _ in every), is_whole=True)
    y = y_axis(max(value for _, value in every))
    shapes = [_polyline(curve, x, y), *_dots(curve, x, y, radius=3)]
    for series in marks:
        shapes += _dots(series, x, y, radius=6)
    rows = [
        [series.label, f"{at:g}", f"{value:.1f}"]
        for series in (curve, *marks)
        for at, value in series.points
    ]
    return figure(
        words,
        name,
        [frame(words, x, y), *shapes],
        TableData(["list", words.x_label, words.y_label], rows),
        legend=[(series.style, series.label) for series in (curve, *marks)],
    )


def time_chart(words: Words, name: str, series: Sequence[Series]) -> Markup:
    """Return values over time, a line each.

    Args:
        words: what it says.
        name: unlike that of any other figure of the page.
        series: at least one, of at least one point; x in seconds.
    """
    every = [point for each in series for point in each.points]
    x = x_axis(max(at for at, _ in every))
    y = y_axis(max(value for _, value in every))
    rows = [
        [each.label, short(at), short(value)]
        for each in series
        for at, value in each.points[:: max(len(each.points) // _NUM_TABLE_ROWS, 1)]
    ]
    return figure(
        words,
        name,
        [frame(words, x, y), *(_polyline(each, x, y) for each in series)],
        TableData(["graphs", words.x_label, words.y_label], rows),
        legend=[(each.style, each.label) for each in series],
    )


def _polyline(series: Series, x: Axis, y: Axis) -> Markup:
    points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in series.points)
    return element("polyline", points=points, class_=f"line {series.style}")


def _dots(series: Series, x: Axis, y: Axis, *, radius: float) -> list[Markup]:
    return [
        element(
            "circle",
            element("title", f"{series.label}: {short(at)}, {short(value)}"),
            cx=x(at),
            cy=y(value),
            r=radius,
            class_=series.style,
        )
        for at, value in series.points
    ]
