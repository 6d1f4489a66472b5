"""A plan says where an artifact answers otherwise than a model that changes its factors."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_factory import plan, write_model


@pytest.mark.parametrize(("max_model_len", "num_warnings"), [(64, 0), (65, 1)])
def test_long_rotary_factors_for_short_requests_are_warned_of(
    tmp_path: Path, max_model_len: int, num_warnings: int
) -> None:
    write_model(
        tmp_path / "model",
        rope_scaling={"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
        original_max_position_embeddings=64,
    )
    warnings = plan(tmp_path, f"max_model_len: {max_model_len}\nblock_size: 8\n").warnings
    assert len(warnings) == num_warnings
    assert all("`max_model_len: 64`" in warning for warning in warnings)
