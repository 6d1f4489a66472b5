"""What an HLO module in its readable form consists of, and what keeps it from a Neuron device.

Knows no XLA: it reads the text, in which every operand stands with its type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

ALLOWED_OPCODES = frozenset(
    {
        *("parameter", "constant", "iota", "tuple", "get-tuple-element"),
        *("reshape", "broadcast", "transpose", "slice", "concatenate", "convert"),
        *("add", "subtract", "multiply", "divide", "negate", "power", "maximum", "minimum"),
        *("exponential", "logistic", "tanh", "rsqrt", "sine", "cosine"),
        *("compare", "and", "select", "clamp"),
        *("dot", "reduce", "sort", "gather", "scatter"),
    }
)
"""What the graphs of all families consist of: no randomness, no control flow, no custom call."""

_DTYPES = frozenset({"pred", "s32", "f32", "bf16"})
_INT64 = "s64"
# A scatter asks whether an index is negative in int64, and a search gives int64 positions that are
# converted at once. Arithmetic, indices, inputs and outputs are int32.
_INT64_OPCODES = frozenset({"constant", "broadcast", "convert", "compare"})

_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%\S+ = (?:\(.*?\)|\S+) (?P<opcode>[\w-]+)\(")
_DTYPE = re.compile(r"\b([a-z]\w*)\[")
# `f32[<=16]` is bounded, `f32[?]` is not.
_DYNAMIC_DIMENSION = re.compile(r"\b[a-z]\w*\[[^\]]*(?:<=|\?)")


@dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
        opcode: such as `dot`.
        line: with the types of the result and of all operands.
        dtypes: the element types among those.
    """

    opcode: str
    line: str
    dtypes: frozenset[str]


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of all computations of a module."""
    for line in text.splitlines():
        if match := _INSTRUCTION.match(line):
            dtypes = frozenset(_DTYPE.findall(line))
            yield Instruction(match["opcode"], line.strip(), dtypes)


def opcodes(text: str) -> set[str]:
    """Return the opcodes of a module."""
    return {instruction.opcode for instruction in instructions(text)}


def hlo_faults(text: str) -> list[str]:
    """Return what a Neuron device cannot run, or should not be asked to."""
    faults = []
    if text.count("HloModule ") != 1 or len(re.findall("^ENTRY ", text, re.MULTILINE)) != 1:
        faults.append("it is not one module with one entry")
    int64_opcodes: Counter[str] = Counter()
    scatters = 0
    for instruction in instructions(text):
        faults += _faults(instruction)
        scatters += instruction.opcode == "scatter"
        int64_opcodes[instruction.opcode] += _INT64 in instruction.dtypes
    if int64_opcodes["compare"] > scatters:
        faults.append(f"{int64_opcodes['compare']} int64 comparisons and {scatters} scatters")
    return faults


def _faults(instruction: Instruction) -> Iterator[str]:
    if instruction.opcode not in ALLOWED_OPCODES:
        yield f"opcode {instruction.opcode}: {instruction.line}"
    if _DYNAMIC_DIMENSION.search(instruction.line):
        yield f"dynamic dimension: {instruction.line}"
    if _INT64 in instruction.dtypes and instruction.opcode not in _INT64_OPCODES:
        yield f"int64: {instruction.line}"
    if others := instruction.dtypes - _DTYPES - {_INT64}:
        yield f"{', '.join(sorted(others))}: {instruction.line}"
