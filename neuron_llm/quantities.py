"""Sizes and spans of time: their units, and how people read and write them."""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
BYTE_UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
"""Bytes of each unit in which a size can be given."""
SECOND_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
"""Seconds of each unit in which a span of time can be given."""
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one element of weights, activations or KV, by the dtypes that a graph can have."""

# As many digits as the sizes of memory in bytes have, with room to spare.
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")


def shown_bytes(num_bytes: int) -> str:
    """Return a size as people read it. 1610612736 is `1.5 GiB`."""
    for unit, size in reversed(BYTE_UNITS.items()):
        if num_bytes >= size:
            return f"{num_bytes / size:.4g} {unit}"
    return f"{num_bytes:.4g} bytes"


def shown_span(seconds: float) -> str:
    """Return a span of time in its largest whole unit, days at most: 90000 seconds are `1 d`."""
    units = sorted(SECOND_UNITS.items(), key=lambda item: -item[1])
    unit, length = next(
        ((name, length) for name, length in units if name != "w" and seconds >= length), ("s", 1)
    )
    return f"{max(0, int(seconds // length))} {unit}"


def whole_number(text: str | None) -> int | None:
    """Return the number that a text is, white space aside, or None if it is none, as `max`."""
    match = _WHOLE_NUMBER.fullmatch((text or "").strip())
    return int(match.group()) if match else None
