"""Uses and padding of graphs as a table of at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping

from neuron_llm.cli.render.table import render_table
from neuron_llm.report.run.padding import PaddingCounts
from neuron_llm.scheduler.buckets import Bucket

_HEADER = ("graph", "uses", "real", "padded", "waste", "cached", "ctx waste", "mean ms")
_MAX_EXACT = 10_000_000


def render_padding(by_bucket: Mapping[Bucket, PaddingCounts], total: PaddingCounts) -> str:
    """Return one row per graph and one for all.

    `padded` are tokens of padding: the rest of a prefill's length, the unused rows of a decode.
    `ctx waste` is the share of context slots of a decode's real rows that hold no token.
    """
    rows = [_row(bucket.name, counts) for bucket, counts in by_bucket.items()]
    return render_table(_HEADER, [*rows, _row("total", total)])


def _row(name: str, counts: PaddingCounts) -> list[str]:
    return [
        name,
        _count(counts.num_uses),
        _count(counts.num_real_tokens),
        _count(counts.num_padded_tokens),
        _percent(counts.padding_ratio),
        _count(counts.num_cached_tokens),
        _percent(counts.context_padding_ratio),
        "-" if counts.mean_ms is None else f"{counts.mean_ms:.1f}",
    ]


def _count(value: int) -> str:
    """Write a count in at most seven characters; `--json` has all digits."""
    return str(value) if value < _MAX_EXACT else f"{value / 1e6:.1f}M"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}"
