"""Plain tables and counts: no colour, no wrapping, the same in a pipe as on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def render_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, num_text_columns: int = 1
) -> str:
    """Return lines of equally wide columns, those of text flush left, the others flush right.

    Args:
        header: a name for each column.
        rows: as many cells each.
        num_text_columns: how many of the first columns are text.
    """
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return "\n".join(_line(row, widths, num_text_columns) for row in (header, *rows))


def _line(cells: Sequence[str], widths: Sequence[int], num_text_columns: int) -> str:
    padded = (
        cell.ljust(width) if column < num_text_columns else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return _GAP.join(padded).rstrip()


def counted(count: int, noun: str) -> str:
    """Return `1 line`, `2 lines`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
