"""The judge of HLO reads every line: opcodes, element types and dimensions."""

from __future__ import annotations

import pytest
from hlo_text import hlo_faults, opcodes

GOOD = """\
HloModule graph.9, entry_computation_layout={(f32[8,4]{1,0}, s32[3]{0})->(f32[8,4]{1,0})}

%AddComputation.1 (x.2: f32[], y.3: f32[]) -> f32[] {
  %x.2 = f32[] parameter(0)
  %y.3 = f32[] parameter(1)
  ROOT %add.4 = f32[] add(f32[] %x.2, f32[] %y.3)
}

ENTRY %graph.9 (p0.1: f32[8,4], p1.2: s32[3]) -> (f32[8,4]) {
  %p0.5 = f32[8,4]{1,0} parameter(0)
  %p1.6 = s32[3]{0} parameter(1)
  %sort.7 = (f32[8,4]{1,0}, s32[8,4]{1,0}) sort(f32[8,4]{1,0} %p0.5, s32[8,4]{1,0} %p0.5)
  ROOT %tuple.8 = (f32[8,4]{1,0}) tuple(f32[8,4]{1,0} %p0.5)
}
"""
LAST = "  ROOT %tuple.8"


def with_line(line: str) -> str:
    return GOOD.replace(LAST, f"  {line}\n{LAST}")


def test_opcodes_of_every_computation_are_seen() -> None:
    assert opcodes(GOOD) == {"parameter", "add", "sort", "tuple"}
    assert hlo_faults(GOOD) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("%a.1 = f32[3]{0} custom-call(f32[3]{0} %p), custom_call_target=", "opcode custom-call"),
        ("%a.1 = (s32[], f32[3]{0}) while((s32[], f32[3]{0}) %p), body=%b", "opcode while"),
        ("%a.1 = (u64[2]{0}, u32[8]{0}) rng-bit-generator(u64[2]{0} %p)", "opcode rng-bit"),
        ("%a.1 = f32[<=16,2]{1,0} add(f32[16,2]{1,0} %p, f32[16,2]{1,0} %p)", "dynamic"),
        ("%a.1 = f32[16]{0} add(f32[?]{0} %p, f32[16]{0} %p)", "dynamic"),
        ("%a.1 = s64[3]{0} add(s64[3]{0} %p, s64[3]{0} %p)", "int64"),
        ("%a.1 = s32[3]{0} gather(s32[8]{0} %p, s64[3,1]{1,0} %p)", "int64"),
        ("%a.1 = f32[] convert(f64[] %p)", "f64"),
        ("%a.1 = pred[3]{0} compare(s64[3]{0} %p, s64[3]{0} %p), direction=LT", "comparisons"),
    ],
)
def test_a_single_line_is_enough(line: str, fault: str) -> None:
    (found, *_) = hlo_faults(with_line(line))
    assert fault in found


def test_a_scatter_may_ask_whether_an_index_is_negative_and_a_search_is_converted() -> None:
    text = with_line(
        "%a.1 = pred[3]{0} compare(s64[3]{0} %p, s64[3]{0} %p), direction=LT\n"
        "  %a.2 = f32[8,4]{1,0} scatter(f32[8,4]{1,0} %p, s32[3,1]{1,0} %p, f32[3,4]{1,0} %p)\n"
        "  %a.3 = s32[3]{0} convert(s64[3]{0} %p)"
    )
    assert hlo_faults(text) == []


def test_two_modules_are_not_one() -> None:
    assert hlo_faults(GOOD + GOOD)[0] == "it is not one module with one entry"
