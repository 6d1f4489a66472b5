"""Where traces of real traffic lie on a machine that has them, and the tests that need them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from neuron_llm.report.length_histogram import LengthHistogram
from neuron_llm.report.trace import Trace
from neuron_llm.report.trace_reader import read_trace

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
NAMES = [path.name for path in sorted(TRACES.glob("*.*"))] or ["none"]
AZURE = "azure2023_conv.csv"
MOONCAKE = "mooncake_conversation_first_half.jsonl"
OFFLINE_F = "servegen_offline_f_excerpt.csv"

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")


@cache
def real_trace(name: str) -> Trace:
    return read_trace(TRACES / name)


@cache
def prompt_lengths(name: str) -> LengthHistogram:
    return real_trace(name).prompt_lengths
