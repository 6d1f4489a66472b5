"""Twelve graphs of SmolLM2 over one set of weights and one KV cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import compile_tiny
from test_memory_growth import limit_bytes, memory_report
from test_smollm2_equivalence import CONFIG, MODEL

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]

TWELVE = (
    CONFIG.replace("MAX_TOKENS", "112")
    .replace("BUCKETS", "[16, 32, 64, 112]")
    .replace("[1, 3, 8]", "[1, 2, 3, 4, 5, 6, 7, 8]")
)


def test_twelve_graphs_share_weights_and_kv_cache(compile_cache: Path, tmp_path: Path) -> None:
    report = memory_report(compile_tiny(MODEL, TWELVE, compile_cache, tmp_path).artifact)
    print({name: round(value / 1e6, 1) for name, value in report.items()}, "MB")
    print(f"limit {limit_bytes(report) / 1e6:.1f} MB")
    assert report["num_graphs"] == 12
    assert report["growth_bytes"] <= limit_bytes(report)
