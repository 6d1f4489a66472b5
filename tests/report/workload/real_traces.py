"""Where traces of real traffic lie on a machine that has them, and the tests that need them."""

from __future__ import annotations

from functools import cache

import pytest
from repository import SHARED_DATA

from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.report.workload.trace import Trace
from neuron_llm.report.workload.trace_reader import read_trace

TRACES = SHARED_DATA / "traces"
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
