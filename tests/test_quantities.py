"""Sizes read as people read them."""

from __future__ import annotations

import pytest

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
