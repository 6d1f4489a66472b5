"""Spans of time and sizes on the command line: as people type them, and as they read them."""

from __future__ import annotations

import re

import typer

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_QUANTITY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([A-Za-z]*)")


def parse_seconds(text: str) -> float:
    """Return a span of time in seconds: `30d`, `12h`, `90m`, `45s`, `2w`.

    Raises:
        BadParameter: it is none.
    """
    return _parsed(text, _SECONDS, "a span of time, such as `30d` or `12h`")


def parse_bytes(text: str) -> int:
    """Return a size in bytes: `5GiB`, `1.5MiB`, `4096`.

    Raises:
        BadParameter: it is none.
    """
    return int(_parsed(text, _BYTES, "a size, such as `5GiB` or `500MiB`"))


def shown_span(seconds: float) -> str:
    """Return a span of time in its largest whole unit: 90000 seconds are `1 d`."""
    units = sorted(_SECONDS.items(), key=lambda item: -item[1])
    unit, length = next(
        ((name, length) for name, length in units if name != "w" and seconds >= length), ("s", 1)
    )
    return f"{max(0, int(seconds // length))} {unit}"


def _parsed(text: str, units: dict[str, int], what: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise typer.BadParameter(f"`{text}` is not {what}")
    return float(match[1]) * units[match[2]]
