"""How often lengths occur, and where buckets end. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_llm.report.html.chart import (
    BASE,
    TOP,
    TableData,
    Words,
    figure,
    frame,
    x_axis,
    y_axis,
)
from neuron_llm.report.html.markup import Markup, element
from neuron_llm.report.html.series import Edges
from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.scheduler.block_pool import ceil_div

_NUM_BINS = 48


def length_chart(
    words: Words, name: str, lengths: LengthHistogram, edges: Sequence[Edges] = ()
) -> Markup:
    """Return a bar for each range of lengths, and a line for each bucket's end.

    Args:
        words: what it says.
        name: unlike that of any other figure of the page.
        lengths: at least one.
        edges: ends of buckets, in tokens.
    """
    longest = max([lengths.longest, *(value for each in edges for value in each.values)])
    width = ceil_div(longest, _NUM_BINS)
    bins = lengths.bins(range(width, longest + width, width))
    x = x_axis(longest, is_whole=True)
    y = y_axis(max(each.num_lengths for each in bins), is_whole=True)
    bars = [
        element(
            "rect",
            element("title", f"{each.min_tokens}-{each.max_tokens}: {each.num_lengths}"),
            x=x(each.min_tokens - 1),
            y=y(each.num_lengths),
            width=max(x(each.max_tokens) - x(each.min_tokens - 1) - 0.6, 0.6),
            height=BASE - y(each.num_lengths),
            class_="bar",
        )
        for each in bins
    ]
    lines = [
        element("line", x1=x(value), x2=x(value), y1=TOP, y2=BASE, class_=f"edge {each.style}")
        for each in edges
        for value in each.values
    ]
    rows = [[f"{b.min_tokens}-{b.max_tokens}", str(b.num_lengths)] for b in bins]
    rows += [[each.label, ", ".join(map(str, each.values))] for each in edges]
    return figure(
        words,
        name,
        [frame(words, x, y), *bars, *lines],
        TableData(["tokens", "how many"], rows),
        legend=[(each.style, each.label) for each in edges],
    )
