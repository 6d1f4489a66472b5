"""Every family compiled for the CPU, one prefill and one decode graph, answers as eager does."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_family import assert_compiled_family_equals_eager
from families import FAMILIES

pytestmark = pytest.mark.prove


@pytest.mark.parametrize("family", FAMILIES)
def test_every_compiled_family_answers_as_eager_does(
    family: str, compile_cache: Path, tmp_path: Path
) -> None:
    assert_compiled_family_equals_eager(family, compile_cache, tmp_path)
