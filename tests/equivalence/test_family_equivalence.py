"""Every family, as exported programs: the answers are eager Hugging Face's, token for token.

With the CPU operators where the family asks them for something of its own, else in plain aten; in
both forms and compiled, every family is in `tests/prove/test_families.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from families import FAMILIES
from family_engine import use_operators
from family_forms import assert_operator_form_equals_eager, assert_plain_form_equals_eager

OPERATOR_FORM = {
    "llama": "a tied head, which is read row by row, and projections that are stacked",
    "llama-yarn-biases": "biases of every projection",
    "qwen3": "heads of an odd number over one, of a dimension of their own",
    "gemma2": "soft-capped scores, and layers in turn with and without a window",
    "phi3": "projections that the checkpoint stacks already",
    "qwen3-moe": "experts of which few are picked: their weights are copied together",
    "gpt-oss": "sinks, and experts with biases that all run",
}
"""Families exported with the operators, and what no other of them asks of the operators."""
PLAIN_FORM = [*(family for family in FAMILIES if family not in OPERATOR_FORM), "llama", "gemma2"]
"""All others, and two of those."""


@pytest.mark.parametrize("family", OPERATOR_FORM)
def test_the_operator_form_answers_as_eager_does(
    family: str, compile_cache: Path, tmp_path: Path
) -> None:
    use_operators(compile_cache)
    assert_operator_form_equals_eager(family, tmp_path)


@pytest.mark.parametrize("family", PLAIN_FORM)
def test_the_aten_form_answers_as_eager_does_in_shorter_chunks(family: str, tmp_path: Path) -> None:
    assert_plain_form_equals_eager(family, tmp_path)
