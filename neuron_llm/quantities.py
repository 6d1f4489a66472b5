"""Sizes and their units: of numbers in memory, and as people read them. Knows no torch."""

from __future__ import annotations

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one number, by the name of its dtype."""


def shown_bytes(num_bytes: int) -> str:
    """Return a size as people read it. 1610612736 is `1.5 GiB`."""
    size = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
