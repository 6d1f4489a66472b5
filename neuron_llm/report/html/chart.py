"""The frame of a chart: axes, legend, and the same figures as a table. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neuron_llm.report.html.axis import Axis, short
from neuron_llm.report.html.markup import Markup, element, joined

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP = 56, 14, 14
BASE = HEIGHT - 42
"""Where the x axis lies."""


@dataclass(frozen=True)
class Words:
    """What a chart says in words.

    Attributes:
        title: what it shows.
        description: the same for who cannot see it, in a sentence.
        x_label: along the bottom; empty for none.
        y_label: of the values at the left; empty for none.
    """

    title: str
    description: str
    x_label: str = ""
    y_label: str = ""


@dataclass(frozen=True)
class TableData:
    """The figures of a chart.

    Attributes:
        header: a name for each column.
        rows: as many cells each.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def x_axis(maximum: float, *, is_whole: bool = False) -> Axis:
    """Return the axis along the bottom of a chart."""
    return Axis(maximum, LEFT, WIDTH - RIGHT, is_whole=is_whole)


def y_axis(maximum: float, *, is_whole: bool = False) -> Axis:
    """Return the axis at the left of a chart, upwards."""
    return Axis(maximum, BASE, TOP, num_ticks=4, is_whole=is_whole)


def figure(
    words: Words,
    name: str,
    shapes: Iterable[Markup],
    table: TableData,
    *,
    legend: Sequence[tuple[str, str]] = (),
    height: int = HEIGHT,
) -> Markup:
    """Return a picture with its title, legend and table.

    Args:
        words: what it says.
        name: unlike that of any other figure of the page.
        shapes: what is drawn, in a field of `WIDTH` times `height`.
        table: its figures.
        legend: CSS class and label of each series.
        height: of the field.
    """
    picture = element(
        "svg",
        element("title", words.title, id=f"{name}-title"),
        element("desc", words.description, id=f"{name}-desc"),
        *shapes,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )
    keys = [element("li", element("span", class_=f"key {c}"), label) for c, label in legend]
    return element(
        "figure",
        element("figcaption", words.title),
        element("ul", *keys, class_="legend") if keys else Markup(""),
        picture,
        element("details", element("summary", "Figures"), render_table(table)),
    )


def frame(words: Words, x: Axis | None, y: Axis) -> Markup:
    """Return the lines and numbers of the axes; without `x`, only the base line at the bottom."""
    parts = []
    for tick in y.ticks:
        at = y(tick)
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(text(short(tick), LEFT - 6, at + 4, anchor="end"))
    if x is not None:
        parts += [text(short(tick), x(tick), BASE + 16) for tick in x.ticks]
    parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=BASE, y2=BASE, class_="base"))
    if words.x_label:
        parts.append(text(words.x_label, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6))
    if words.y_label:
        middle = (TOP + BASE) / 2
        parts.append(text(words.y_label, 12, middle, transform=f"rotate(-90 12 {middle})"))
    return joined(parts)


def text(
    content: str, x: float, y: float, *, anchor: str = "middle", transform: str | None = None
) -> Markup:
    """Return a piece of text at a place."""
    return element("text", content, x=x, y=y, text_anchor=anchor, transform=transform)


def render_table(data: TableData) -> Markup:
    """Return a table, in a box of its own that scrolls where it is too wide."""
    head = element("tr", *(element("th", name, scope="col") for name in data.header))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", c) for c in row[1:]))
        for row in data.rows
    ]
    table = element("table", element("thead", head), element("tbody", *body))
    return element("div", table, class_="scroll", tabindex="0")
