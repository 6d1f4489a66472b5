"""What lies in the compile cache, and what of it can go."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from neuron_llm.backends.build.cache import GraphCache

EntryKind = Literal["graph", "library", "model", "checkpoint", "log", "compiler"]

_CHECKPOINTS_DIR = "checkpoints"
COMPILER_DIR = "neuronx-cc"
"""Where neuronx-cc works: a folder for each graph, with its input and its log."""
JOINED_PREFIX = "nxd_model-"
"""What the names of entries begin with that hold several graphs in one file."""
_GRAPH_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CacheEntry:
    """One thing that can be removed by itself.

    Attributes:
        kind: a compiled graph, an operator library, a model that graphs were put together to, a
            converted checkpoint, the log of a build, or the folder in which neuronx-cc worked.
        path: where it lies.
        size_bytes: of its files.
        last_used: when it was made or last used, in seconds since 1970.
    """

    kind: EntryKind
    path: Path
    size_bytes: int
    last_used: float

    @property
    def name(self) -> str:
        """Its name in the cache: a key, or the name of a file."""
        return self.path.name


@dataclass(frozen=True)
class PruneLimits:
    """What may stay.

    Attributes:
        max_age_s: seconds since the last use; None for any.
        max_size_bytes: of all entries together; what was used last stays. None for any.
    """

    max_age_s: float | None = None
    max_size_bytes: int | None = None


@dataclass(frozen=True)
class PruneResult:
    """What pruning did, or would do.

    Attributes:
        removed: what is gone.
        in_use: what should have gone, and stays because a running compile may need it.
        kept: everything that stays, `in_use` included.
    """

    removed: tuple[CacheEntry, ...]
    in_use: tuple[CacheEntry, ...]
    kept: tuple[CacheEntry, ...]


def list_cache(root: Path) -> list[CacheEntry]:
    """Return every entry, the one that was used last first; none if there is no such cache."""
    folders: tuple[tuple[str, EntryKind | None], ...] = (
        ("graphs", None),
        (_CHECKPOINTS_DIR, "checkpoint"),
        ("logs", "log"),
        (COMPILER_DIR, "compiler"),
    )
    entries = []
    for folder, kind in folders:
        if (root / folder).is_dir():
            for path in (root / folder).iterdir():
                entry = _entry(path, kind)
                if entry is not None:
                    entries.append(entry)
    return sorted(entries, key=lambda entry: (-entry.last_used, entry.name))


def prune_cache(root: Path, limits: PruneLimits, *, dry_run: bool) -> PruneResult:
    """Remove what is older than the limits allow, or least recently used of what is too much.

    What a running compile has used stays, and so does everything that is being built. Keys that
    lead nowhere, and what killed processes left, go in any case.

    Args:
        root: of the cache; nothing is made where there is none.
        limits: what may stay.
        dry_run: only tell.

    Raises:
        NeuronLLMError: the cache cannot be written.
    """
    if not root.is_dir():
        return PruneResult(removed=(), in_use=(), kept=())
    cache = GraphCache(root)
    # What goes steps aside in one rename each, so that nobody waits for it to be deleted.
    with cache.scratch() as scratch, cache.pruning() as began:
        result = choose_entries(list_cache(root), limits, began=began, now=time.time())
        if not dry_run:
            for index, entry in enumerate(result.removed):
                os.rename(entry.path, scratch / str(index))
            _remove_dangling_keys(root)
    return result


def choose_entries(
    entries: Sequence[CacheEntry], limits: PruneLimits, *, began: float | None, now: float
) -> PruneResult:
    """Return what goes, what would go if no compile could need it, and what stays.

    Args:
        entries: of a cache.
        limits: what may stay.
        began: when the oldest compile that still runs began; None if there is none.
        now: the time.
    """
    removed: list[CacheEntry] = []
    in_use: list[CacheEntry] = []
    total_bytes = sum(entry.size_bytes for entry in entries)
    for entry in sorted(entries, key=lambda entry: (entry.last_used, entry.name)):
        is_old = limits.max_age_s is not None and now - entry.last_used >= limits.max_age_s
        is_too_much = limits.max_size_bytes is not None and total_bytes > limits.max_size_bytes
        if not is_old and not is_too_much:
            continue
        if began is not None and entry.last_used >= began:
            in_use.append(entry)
        else:
            removed.append(entry)
            total_bytes -= entry.size_bytes
    kept = tuple(entry for entry in entries if entry not in removed)
    return PruneResult(tuple(removed), tuple(in_use), kept)


def _entry(path: Path, kind: EntryKind | None) -> CacheEntry | None:
    if kind is None:
        kind = "library"
        if _GRAPH_KEY.fullmatch(path.name):
            kind = "graph"
        elif path.name.startswith(JOINED_PREFIX):
            kind = "model"
    try:
        files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
        size_bytes = sum(file.stat().st_size for file in files)
        return CacheEntry(kind, path, size_bytes, path.stat().st_mtime)
    except FileNotFoundError:
        return None  # Another process has removed it meanwhile.


def _remove_dangling_keys(root: Path) -> None:
    for link in (root / "keys").iterdir():
        name = link.read_text(errors="replace").strip()
        if not name or not (root / "graphs" / name).is_dir():
            link.unlink(missing_ok=True)
