"""Compiled graphs with windows, sinks and experts answer as eager does.

Those of Llama and Qwen3 are tried on every prompt length in
`tests/runtime/engine/test_generation.py`, all other families in `tests/prove/test_families.py`. It
hands the operators a window and sinks besides; a soft cap is one more number, as the scale is, and
`tests/backends/cpu/operators/test_paged_attention_checks.py` holds its place among them.
"""

from __future__ import annotations

from pathlib import Path

from family_forms import assert_compiled_form_equals_eager


def test_a_compiled_gpt_oss_answers_as_eager_does(compile_cache: Path, tmp_path: Path) -> None:
    assert_compiled_form_equals_eager("gpt-oss", compile_cache, tmp_path)
