"""Spans of time and sizes as people type them on the command line."""

from __future__ import annotations

import re

import typer

from neuron_llm.quantities import BYTE_UNITS, SECOND_UNITS

_QUANTITY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([A-Za-z]*)")


def parse_seconds(text: str) -> float:
    """Return a span of time in seconds: `30d`, `12h`, `90m`, `45s`, `2w`.

    Raises:
        BadParameter: it is none.
    """
    return _parsed(text, SECOND_UNITS, "a span of time, such as `30d` or `12h`")


def parse_bytes(text: str) -> int:
    """Return a size in bytes: `5GiB`, `1.5MiB`, `4096`.

    Raises:
        BadParameter: it is none.
    """
    return int(_parsed(text, {"": 1, **BYTE_UNITS}, "a size, such as `5GiB` or `500MiB`"))


def _parsed(text: str, units: dict[str, int], what: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise typer.BadParameter(f"`{text}` is not {what}")
    return float(match[1]) * units[match[2]]
