"""Sections of a report as lines of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 80
_LABEL_WIDTH = 16


def section(title: str, *blocks: str) -> str:
    """Return a title, underlined, and the blocks that belong to it."""
    return "\n".join([title, "-" * min(len(title), WIDTH), *blocks])


def labelled(label: str, text: str) -> str:
    """Return `label  text`, the text broken between words and set in."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=label.ljust(_LABEL_WIDTH),
        subsequent_indent=" " * _LABEL_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def sizes(values: Iterable[int]) -> str:
    """Return a list as YAML writes it."""
    return f"[{', '.join(map(str, values))}]"


def percent(ratio: float | None) -> str:
    """Return a share with one digit behind the point, `-` for none."""
    return "-" if ratio is None else f"{ratio:.1%}"


def first_few(items: Sequence[str], num_shown: int = 3) -> str:
    """Return the first items and how many more there are: `a; b; c; and 4 more (with --json)`."""
    num_more = len(items) - num_shown
    more = [f"and {num_more} more (with --json)"] if num_more > 0 else []
    return "; ".join([*items[:num_shown], *more])


def number(value: float | None) -> str:
    """Return a measure in at most seven characters, with three digits at least; `-` for none."""
    if value is None:
        return "-"
    for limit, digits in ((1, 3), (100, 2), (10_000, 1), (1e6, 0)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value / 1e6:.1f}M"
