"""Compiled graphs with soft-capped scores, windows, sinks and experts answer as eager does.

Those of Llama and Qwen3 are tried on every prompt length in
`tests/runtime/engine/test_generation.py`, all other families in `tests/prove/test_families.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from family_forms import assert_compiled_form_equals_eager


@pytest.mark.parametrize("family", ["gemma2", "gpt-oss"])
def test_compiled_family_answers_as_eager_does(
    family: str, compile_cache: Path, tmp_path: Path
) -> None:
    assert_compiled_form_equals_eager(family, compile_cache, tmp_path)
