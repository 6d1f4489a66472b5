"""Sizes read as people read them, and are written down once."""

from __future__ import annotations

import re

import pytest
from repository import ROOT

from neuron_llm.quantities import shown_bytes


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (3 * 2**29, "1.5 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_a_size_is_shown_in_its_largest_unit(num_bytes: int, text: str) -> None:
    assert shown_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r"-\(-", "neuron_llm/scheduler/block_pool.py"),
        # A power of two of bytes; elements and cells are counted otherwise.
        (r"\b2 ?\*\* ?[1-4]0\b", "neuron_llm/quantities.py"),
    ],
    ids=["rounding up", "units"],
)
def test_a_fact_has_one_home(pattern: str, home: str) -> None:
    homes = {
        path.relative_to(ROOT).as_posix()
        for folder in ("neuron_llm", "bench", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert homes == {home}
