"""Prompts files: JSON lines, read one at a time. Knows no torch.

The memory that reading takes does not depend on the number of lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO

from neuron_llm.errors import NeuronLLMError
from neuron_llm.quantities import MIB
from neuron_llm.runtime.batch.prompt_line import (
    PROMPT_FIELDS,
    BadLine,
    PromptLine,
    parse_line,
)
from neuron_llm.runtime.sampling.sampling_params import SAMPLING_FIELDS

MAX_LINE_BYTES = 64 * MIB
"""A longer line is refused without being read whole: no model's context is so long."""

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_MAX_UNKNOWN_FIELDS = 100


@contextmanager
def open_prompts(path: Path) -> Iterator[BinaryIO]:
    """Open a prompts file for reading.

    Raises:
        NeuronLLMError: it is missing, a directory or unreadable.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise NeuronLLMError(
            f"cannot read the prompts file `{path}`: {(error.strerror or str(error)).lower()}",
            hint='give a file with one JSON object a line, such as `{"prompt": "Hello"}`, or '
            "`/dev/stdin`",
        ) from error
    with stream:
        yield stream


@dataclass
class _UnknownField:
    first_line_number: int
    num_lines: int = 0


class PromptReader:
    """Iterates over the lines of a prompts file, good and bad, in order; blank ones are skipped.

    Args:
        stream: the file, from its beginning; a pipe will do.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._unknown_fields: dict[str, _UnknownField] = {}

    def __iter__(self) -> Iterator[PromptLine | BadLine]:
        """Yield one item per line.

        Raises:
            NeuronLLMError: the file is UTF-16.
        """
        for index, (line_number, data) in enumerate(numbered_lines(self._stream)):
            if data is None:
                yield _too_long(index, line_number)
                continue
            line = parse_line(data, index, line_number)
            if isinstance(line, PromptLine):
                self._count_unknown_fields(line)
            yield line

    def warnings(self) -> list[str]:
        """Return one sentence for every field name so far that means nothing here."""
        return [_warning(name, seen) for name, seen in self._unknown_fields.items()]

    def _count_unknown_fields(self, line: PromptLine) -> None:
        for name in line.unknown_fields:
            if name not in self._unknown_fields:
                if len(self._unknown_fields) == _MAX_UNKNOWN_FIELDS:
                    continue
                self._unknown_fields[name] = _UnknownField(line.line_number)
            self._unknown_fields[name].num_lines += 1


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of every line that is not blank.

    A line longer than `MAX_LINE_BYTES` is None.

    Raises:
        NeuronLLMError: the file is UTF-16.
    """
    line_number = 0
    while data := stream.readline(MAX_LINE_BYTES + 1):
        line_number += 1
        if line_number == 1:
            data = _without_byte_order_mark(data)
        if len(data) > MAX_LINE_BYTES:
            _skip_rest_of_line(stream, data)
            yield line_number, None
        elif stripped := data.strip():
            yield line_number, stripped


def _without_byte_order_mark(data: bytes) -> bytes:
    if data.startswith(_UTF16_BOMS):
        raise NeuronLLMError(
            "the prompts file is UTF-16, not UTF-8",
            hint="convert it: `iconv -f UTF-16 -t UTF-8 OLD > NEW`",
        )
    return data.removeprefix(_UTF8_BOM)


def _too_long(index: int, line_number: int) -> BadLine:
    return BadLine(
        index=index,
        line_number=line_number,
        id=index,
        has_own_id=False,
        code="line_too_long",
        message=f"the line is longer than {MAX_LINE_BYTES} bytes",
    )


def _skip_rest_of_line(stream: BinaryIO, data: bytes) -> None:
    while data and not data.endswith(b"\n"):
        data = stream.readline(MIB)


def _warning(name: str, seen: _UnknownField) -> str:
    times = "1 line" if seen.num_lines == 1 else f"{seen.num_lines} lines"
    warning = f"unknown field `{name}` ignored in {times} (first: line {seen.first_line_number})"
    close = get_close_matches(name, [*SAMPLING_FIELDS, *PROMPT_FIELDS], n=1)
    return f"{warning}; did you mean `{close[0]}`" if close else warning
