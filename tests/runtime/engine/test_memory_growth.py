"""Weights and KV cache are there once, however many graphs share them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import Compiled
from repository import ROOT

PROBE = ROOT / "tests" / "memory_probe.py"


def memory_report(artifact: Path) -> dict[str, int]:
    result = subprocess.run(
        [sys.executable, str(PROBE), str(artifact)], capture_output=True, text=True, check=True
    )
    report: dict[str, int] = json.loads(result.stdout)
    return report


def limit_bytes(report: dict[str, int]) -> float:
    """Return what loading and running may add: the two shares, an eighth, and 30 MB."""
    return 1.15 * (report["weights_bytes"] + report["kv_cache_bytes"]) + 30e6


def test_loading_every_graph_adds_little_to_weights_and_kv_cache(llama: Compiled) -> None:
    report = memory_report(llama.artifact)
    assert report["num_graphs"] == 5
    assert report["growth_bytes"] <= limit_bytes(report), report
