"""Plain tables: alignment, and columns that stay within a terminal."""

from __future__ import annotations

from neuron_llm.cli.render.padding_table import render_padding
from neuron_llm.cli.render.table import render_table
from neuron_llm.report.run.padding import PaddingCounts
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket


def test_text_is_flush_left_and_numbers_flush_right() -> None:
    table = render_table(["graph", "n"], [["a", "1"], ["longer", "100"]])
    assert table.splitlines() == ["graph     n", "a         1", "longer  100"]


def test_table_without_rows_is_its_header() -> None:
    assert render_table(["graph", "uses"], []) == "graph  uses"


def test_padding_table_shows_what_is_undefined_as_a_dash() -> None:
    used = PaddingCounts(num_uses=2, num_real_tokens=12, num_length_padded_tokens=4, seconds=0.01)
    table = render_padding({PrefillBucket(8): used, DecodeBucket(4, 512): PaddingCounts()}, used)
    assert table.splitlines() == [
        "graph           uses  real  padded  waste  cached  ctx waste  mean ms",
        "prefill_t8         2    12       4  25.0%       0          -      5.0",
        "decode_b4_c512     0     0       0      -       0          -        -",
        "total              2    12       4  25.0%       0          -      5.0",
    ]


def test_padding_table_of_a_large_run_fits_into_80_columns() -> None:
    huge = PaddingCounts(
        num_uses=9_999_999,
        num_real_tokens=12_345_678_901,
        num_row_padded_tokens=9_999_999,
        num_cached_tokens=99_999_999,
        num_decode_context_tokens=10**12,
        num_context_padded_tokens=10**12,
        seconds=999_999.0,
    )
    by_bucket: dict[Bucket, PaddingCounts] = {DecodeBucket(8, 16384): huge}
    lines = render_padding(by_bucket, huge).splitlines()
    assert max(map(len, lines)) <= 80
    assert "12345.7M" in lines[1]
