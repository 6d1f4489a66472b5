"""Reading a trace file: CSV below a header line, or JSON lines. Knows no torch.

A line is a row, also in CSV: no known trace has line breaks within a field, and so a quote that
nobody closes costs its own line and not all that follow.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.workload.trace import Trace
from neuron_llm.report.workload.trace_builder import TraceBuilder, known_columns
from neuron_llm.report.workload.trace_values import RowError, shown

_GZIP_MAGIC = "\udc8b\x08"
"""How a file that `gzip` wrote begins as text, behind a byte that is a blank to Python."""

_Lines = Iterable[tuple[int, str]]
"""Each line's number in the file, from 1, and its text without the blanks around it."""


def read_trace(path: Path) -> Trace:
    """Read a trace of any known format, told by its columns.

    Blank lines are skipped, and a bad row costs no other.

    Raises:
        NeuronLLMError: the file cannot be read, is compressed or empty, has unknown columns or no
            usable row.
    """
    builder = TraceBuilder(path)
    try:
        # What is not UTF-8 is bad only where a value is read from it; line ends may be of any kind.
        with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
            lines = ((n, text) for n, line in enumerate(file, start=1) if (text := line.strip()))
            number, first = next(lines, (0, ""))
            if not first:
                raise NeuronLLMError(f"the trace `{path}` is empty", hint=known_columns())
            if first.startswith(_GZIP_MAGIC):
                raise NeuronLLMError(
                    f"the trace `{path}` is compressed", hint="decompress it first: `gzip -d FILE`"
                )
            if first.startswith("{"):
                _read_json(builder, chain([(number, first)], lines))
            else:
                _read_csv(builder, first, lines)
    except OSError as error:
        raise NeuronLLMError(
            f"cannot read the trace `{path}`: {(error.strerror or str(error)).lower()}",
            hint="give a file that exists and can be read",
        ) from error
    return builder.build()


def _read_csv(builder: TraceBuilder, header: str, lines: _Lines) -> None:
    try:
        columns = _fields_of(header)
    except RowError:
        columns = [header]
    builder.recognise(columns)
    for number, line in lines:
        try:
            fields = _fields_of(line)
            if len(fields) != len(columns):
                raise RowError(f"the line has {len(fields)} fields, the header {len(columns)}")
        except RowError as error:
            builder.reject(number, str(error))
        else:
            builder.add(number, dict(zip(columns, fields, strict=True)))


def _read_json(builder: TraceBuilder, lines: _Lines) -> None:
    for number, line in lines:
        try:
            fields = _object_of(line)
        except RowError as error:
            builder.reject(number, str(error))
        else:
            builder.add(number, fields)


def _fields_of(line: str) -> list[str]:
    """Return the fields of a CSV line, without the blanks around them."""
    try:
        fields = next(csv.reader([line], strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise RowError(f"the line is not CSV: {error}") from error
    return [field.strip() for field in fields]


def _object_of(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=_distinct_fields)
    except json.JSONDecodeError as error:
        raise RowError(f"the line is not JSON: {error!s:.120}") from error
    except RecursionError as error:
        raise RowError("the line is nested too deeply") from error
    except RowError:
        raise
    except ValueError as error:  # What JSON allows, but Python reads no further than 4300 digits.
        raise RowError("the line holds an integer of thousands of digits") from error
    if not isinstance(value, dict):
        raise RowError("the line is JSON, but no object")
    return value


def _distinct_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: which of the two values is meant, nobody can say."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise RowError(f"the line has the key `{shown(repeated)}` twice")
    return fields
