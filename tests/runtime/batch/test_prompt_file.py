from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch import prompt_file
from neuron_llm.runtime.batch.prompt_file import PromptReader, open_prompts
from neuron_llm.runtime.batch.prompt_line import BadLine, PromptLine


def read(data: bytes) -> list[PromptLine | BadLine]:
    return list(PromptReader(io.BytesIO(data)))


def texts(data: bytes) -> list[str | None]:
    return [line.prompt if isinstance(line, PromptLine) else None for line in read(data)]


def test_every_line_is_one_prompt_with_or_without_a_final_newline() -> None:
    assert texts(b'{"prompt": "a"}\n{"prompt": "b"}\n') == ["a", "b"]
    assert texts(b'{"prompt": "a"}\n{"prompt": "b"}') == ["a", "b"]


def test_an_empty_file_has_no_prompts() -> None:
    assert read(b"") == read(b"\n \r\n\t\n") == []


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_text() -> None:
    data = b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"prompt": "b\\r"}\r\n'
    assert texts(data) == ["a", "b\r"]
    assert read(b"\xef\xbb\xbf") == []


def test_blank_lines_count_as_lines_but_not_as_prompts() -> None:
    lines = read(b'\n{"prompt": "a"}\n  \n\n{"prompt": "b"}\nbad\n')
    assert [(line.index, line.line_number) for line in lines] == [(0, 2), (1, 5), (2, 6)]


def test_line_separators_of_unicode_do_not_end_a_line() -> None:
    assert texts('{"prompt": "a\u2028b\x85c"}\n'.encode()) == ["a\u2028b\x85c"]


def test_one_bad_line_does_not_touch_the_others() -> None:
    lines = read(b'{"prompt": "a"}\n{"prompt": "\xff"}\n{"prompt": "b"}\n')
    assert [isinstance(line, BadLine) for line in lines] == [False, True, False]
    assert lines[1].id == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_file_in_utf_16_is_refused_with_a_way_out(encoding: str) -> None:
    data = ("\ufeff" if encoding == "utf-16-be" else "").encode(encoding)
    data += '{"prompt": "a"}\n'.encode(encoding)
    with pytest.raises(NeuronLLMError, match="UTF-16") as raised:
        read(data)
    assert raised.value.hint is not None and "iconv" in raised.value.hint


def test_a_line_past_the_limit_is_refused_and_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_file, "MAX_LINE_BYTES", 40)
    fits = b'{"prompt": "' + b"x" * 25 + b'"}\n'
    assert len(fits) == 40
    long = b'{"prompt": "' + b"x" * 3_000_000 + b'"}\n'
    lines = read(fits + long + b'{"prompt": "b"}')
    assert [getattr(line, "code", None) for line in lines] == [None, "line_too_long", None]
    assert [line.index for line in lines] == [0, 1, 2]
    assert read(long[:-1])[0].id == 0


def test_unknown_fields_are_collected_into_one_warning_each() -> None:
    reader = PromptReader(
        io.BytesIO(
            b'{"prompt": "a"}\n{"prompt": "b", "temprature": 1, "note": 2}\n'
            b'{"prompt": "c", "temprature": 1}\n'
        )
    )
    assert reader.warnings() == []
    list(reader)
    assert reader.warnings() == [
        "unknown field `temprature` ignored in 2 lines (first: line 2); did you mean `temperature`",
        "unknown field `note` ignored in 1 line (first: line 2)",
    ]


def test_endlessly_different_unknown_fields_do_not_pile_up() -> None:
    data = b"".join(b'{"prompt": "a", "x%d": 1}\n' % index for index in range(500))
    reader = PromptReader(io.BytesIO(data))
    list(reader)
    assert len(reader.warnings()) == 100


class EndlessFile(io.RawIOBase):
    """A file of `num_lines` equal lines that exists only while it is read."""

    def __init__(self, num_lines: int) -> None:
        self.num_lines_left = num_lines

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        line = json.dumps({"prompt": "x" * 1000}).encode() + b"\n"
        num_lines = min(self.num_lines_left, len(buffer) // len(line))
        self.num_lines_left -= num_lines
        buffer[: num_lines * len(line)] = line * num_lines
        return num_lines * len(line)


def test_lines_are_read_only_when_asked_for_and_never_kept() -> None:
    file = EndlessFile(20_000)
    lines: Iterator[PromptLine | BadLine] = iter(PromptReader(io.BufferedReader(file, 65536)))
    next(lines)
    assert file.num_lines_left > 19_900
    tracemalloc.start()
    num_lines = 1 + sum(1 for _ in lines)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_lines == 20_000
    assert peak < 1_000_000  # of 20 MB


def test_a_missing_prompts_file_is_named_with_an_example(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with (
            pytest.raises(NeuronLLMError, match="cannot read the prompts file") as raised,
            open_prompts(path),
        ):
            pass
        assert str(path) in raised.value.message
        assert raised.value.hint is not None and '{"prompt": "Hello"}' in raised.value.hint


def test_an_open_prompts_file_is_read_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n')
    with open_prompts(path) as stream:
        assert [line.id for line in PromptReader(stream)] == [0]
    assert stream.closed
