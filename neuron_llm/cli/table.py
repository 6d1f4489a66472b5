"""A plain table: no colour, no wrapping, the same in a pipe as on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines of equally wide columns, the first flush left and the others flush right.

    Args:
        header: a name for each column.
        rows: as many cells each.
    """
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return "\n".join(_line(row, widths) for row in (header, *rows))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return _GAP.join((first, *others)).rstrip()
