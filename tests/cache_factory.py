"""Entries of a compile cache that nobody compiled, of any size and age."""

from __future__ import annotations

import os
import time
from pathlib import Path

from neuron_llm.backends.build.cache import GraphCache

DAY = 86400.0
OLD, NEW = "a" * 64, "b" * 64


def add_graph(root: Path, key: str, *, size: int, age_s: float = 0) -> Path:
    """Put a graph into a cache, under a key of its own, as if it was used so long ago."""
    cache = GraphCache(root)
    with cache.new_entry(key) as directory:
        (directory / "graph.so").write_bytes(bytes(size))
    cache.link(f"config-{key}", key)
    entry = root / "graphs" / key
    os.utime(entry, (time.time() - age_s,) * 2)
    return entry
