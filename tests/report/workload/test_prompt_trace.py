from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from neuron_llm.errors import NeuronLLMError, RequestError
from neuron_llm.report.workload.prefix_hits import computed_after_hits
from neuron_llm.report.workload.prompt_trace import read_prompt_trace

VOCAB_SIZE = 128


class Letters:
    """A token for each character; a conversation has one more."""

    def encode_prompt(self, text: str) -> list[int]:
        if not text:
            raise RequestError("the prompt is empty", code="empty_prompt")
        return [ord(character) for character in text]

    def encode_messages(
        self, messages: Sequence[Mapping[str, Any]], *, chat_template: str | None = None
    ) -> list[int]:
        text = "".join(message["content"] for message in messages)
        if chat_template == "":
            return []
        return [len(chat_template or ""), *self.encode_prompt(text)]


def write_lines(path: Path, *lines: object) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(texts))
    return path


def test_prompts_messages_and_token_ids_are_counted(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "p.jsonl",
        {"prompt": "abcde"},
        {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 7},
        {"prompt_token_ids": [1, 2, 3]},
    )
    trace = read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE).trace
    assert [(r.prompt_tokens, r.output_tokens, r.line) for r in trace.requests] == [
        (5, None, 1),
        (4, 7, 2),
        (3, None, 3),
    ]


def test_every_line_that_cannot_run_is_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", {"prompt": "a"}, "{", {"prompt": ""}, {"text": "b"})
    read = read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE)
    assert [row.line for row in read.trace.bad_rows] == [2, 3, 4]
    assert read.trace.bad_rows[1].reason == "the prompt is empty"
    assert len(read.trace.requests) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"prompt": "a", "max_tokens": 0}, "`max_tokens` is 0"),
        ({"prompt": "a", "max_tokens": "9"}, "`max_tokens` is '9'"),
        ({"prompt": "a", "temperature": -1}, "`temperature` is -1"),
        ({"prompt": "a", "n": 0}, "`n` is 0"),
        ({"prompt_token_ids": [5, VOCAB_SIZE]}, "token id 128 is outside the vocabulary"),
    ],
)
def test_what_a_run_would_refuse_is_no_workload(
    tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    path = write_lines(tmp_path / "p.jsonl", {"prompt": "b"}, fields)
    trace = read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE).trace
    assert [request.line for request in trace.requests] == [1]
    (row,) = trace.bad_rows
    assert row.line == 2
    assert reason in row.reason


def test_a_template_that_writes_nothing_is_named_with_its_line(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "p.jsonl", {"prompt": "b"}, {"messages": [{"role": "user", "content": "a"}]}
    )
    read = read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE, chat_template="")
    (row,) = read.trace.bad_rows
    assert (row.line, row.reason) == (2, "the chat template writes nothing")


def test_every_completion_of_a_line_is_a_prompt_that_shares_its_blocks(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", {"prompt": "aaaab", "n": 3, "max_tokens": 2})
    trace = read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE).trace
    assert [(r.prompt_tokens, r.output_tokens, r.line) for r in trace.requests] == [(5, 2, 1)] * 3
    assert computed_after_hits(trace, block_size=4).num_computed_tokens == [5, 1, 1]


def test_fields_that_mean_nothing_are_told(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", {"prompt": "a", "max_token": 3})
    (warning,) = read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE).warnings
    assert "did you mean `max_tokens`" in warning


def test_equal_beginnings_share_whole_blocks_and_equal_blocks_elsewhere_do_not(
    tmp_path: Path,
) -> None:
    path = write_lines(
        tmp_path / "p.jsonl",
        {"prompt": "aaaabbbbcc"},
        {"prompt": "aaaabbbbcd"},
        {"prompt": "bbbbaaaa"},
    )
    trace = read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE).trace
    first, second, third = (request.hash_ids for request in trace.requests)
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    assert not set(third) & {*first, *second}
    work = computed_after_hits(trace, block_size=4)
    assert work.num_computed_tokens == [10, 2, 8]


@pytest.mark.parametrize("content", ["", "{\n", '{"prompt": ""}\n'])
def test_a_file_without_a_usable_line_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(NeuronLLMError, match="no line of the prompts file"):
        read_prompt_trace(path, Letters(), block_size=4, vocab_size=VOCAB_SIZE)
