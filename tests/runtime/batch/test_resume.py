"""What an output file tells of a job that did not end."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch.prompt_file import PromptReader
from neuron_llm.runtime.batch.resume import (
    FinishedRecords,
    JobIdentity,
    find_finished_records,
)

PATH = Path("out.jsonl")
PROMPTS = b'{"id": "a", "prompt": "x"}\n\nno json\n{"prompt": "y"}\n{"id": "d", "prompt": "z"}\n'
IDS: tuple[Any, ...] = ("a", 1, 2, "d")


def record(index: int, /, **changes: Any) -> bytes:
    error = {"code": "invalid_json", "message": "no"} if index == 1 else None
    fields = {"id": IDS[index], "index": index, "text": "\u00e9", "error": error, **changes}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def find(output: bytes) -> FinishedRecords:
    return find_finished_records(PATH, io.BytesIO(output), PromptReader(io.BytesIO(PROMPTS)))


@pytest.mark.parametrize("num_records", range(5))
def test_all_whole_records_in_turn_count(num_records: int) -> None:
    output = b"".join(record(index) for index in range(num_records))
    assert find(output) == FinishedRecords(num_records, int(num_records > 1), len(output))


def test_half_a_record_does_not_count() -> None:
    whole = record(0) + record(1)
    for end in range(len(record(2)) - 1):
        assert find(whole + record(2)[:end]) == FinishedRecords(2, 1, len(whole))


def test_records_behind_a_missing_one_do_not_count() -> None:
    assert find(record(0) + record(2) + record(3)) == FinishedRecords(1, 0, len(record(0)))
    assert find(record(3)) == FinishedRecords()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (b"my notes\n", "a line is no JSON"),
        (b'{"prompt": "x"}\n', "a line is no record"),
        (record(0, index="0"), "a line is no record"),
        (record(0, id="b"), "line 1 is no record of a prompt in turn"),
        (record(0) + record(0), "line 2 is no record of a prompt in turn"),
        (b"".join(map(record, range(4))) + record(3, index=4), "line 5 is no record"),
    ],
)
def test_a_file_of_something_else_is_refused(output: bytes, reason: str) -> None:
    with pytest.raises(NeuronLLMError, match=f"`out.jsonl` is not what a job .* left: {reason}"):
        find(output)


def test_whatever_differs_from_the_job_that_began_is_named() -> None:
    began = JobIdentity("a1", "5e", {"seed": 1, "top_k": 3})
    assert JobIdentity("a1", "5e", {"top_k": 3, "seed": 1}).differences(began) == []
    assert JobIdentity("b2", "6f", {"seed": 2, "min_p": 0.5}).differences(began) == [
        "the artifact is `b2`, and was `a1`",
        "the prompts file has changed",
        "`min_p` is 0.5, and was null",
        "`seed` is 2, and was 1",
        "`top_k` is null, and was 3",
    ]
