from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.runtime.batch.prompt_line import BadLine
from neuron_llm.runtime.batch.records import (
    OrderedRecordWriter,
    OutputRecord,
)
from neuron_llm.runtime.engine.outputs import CompletionOutput, Logprob, RequestOutput, RequestTimes

KEYS = [
    "id",
    "index",
    "text",
    "finish_reason",
    "stop_reason",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_output_tokens",
    "queue_ms",
    "ttft_ms",
    "e2el_ms",
    "error",
]


def record(index: int, text: str = "t") -> OutputRecord:
    return OutputRecord(f"id{index}", index, text=text, finish_reason="stop")


def request_output(**fields: Any) -> RequestOutput:
    completion = CompletionOutput(0, "hello", (7, 8, 9), "stop", 9)
    values = {
        "request_id": "internal",
        "prompt_token_ids": (1, 2, 3, 4),
        "outputs": (completion,),
        "num_cached_tokens": 2,
        "times": RequestTimes(10.0, (10.25, 10.5, 11.0), 10.125),
    }
    return RequestOutput(**{**values, **fields})


def written(stream: io.BytesIO) -> list[dict[str, Any]]:
    lines = stream.getvalue().decode().split("\n")
    assert lines.pop() == ""
    return [json.loads(line) for line in lines]


def test_the_record_of_a_result_has_every_key_and_a_null_error() -> None:
    made = OutputRecord.of_output("a", 3, request_output(), with_token_ids=False).to_json()
    assert list(made) == KEYS
    assert made == {
        "id": "a",
        "index": 3,
        "text": "hello",
        "finish_reason": "stop",
        "stop_reason": 9,
        "num_prompt_tokens": 4,
        "num_cached_tokens": 2,
        "num_output_tokens": 3,
        "queue_ms": 125.0,
        "ttft_ms": 250.0,
        "e2el_ms": 1000.0,
        "error": None,
    }


def test_token_ids_are_there_only_if_asked_for() -> None:
    made = OutputRecord.of_output("a", 3, request_output(), with_token_ids=True).to_json()
    assert made["token_ids"] == [7, 8, 9]


def test_log_probabilities_are_there_only_if_asked_for_in_the_form_that_is_given() -> None:
    logprobs = ({7: Logprob(-0.5, 1, "he")},) * 3
    completion = CompletionOutput(0, "hello", (7, 7, 7), "stop", 9, logprobs=logprobs)
    output = request_output(outputs=(completion,), prompt_logprobs=(None, logprobs[0]))
    made = OutputRecord.of_output("a", 3, output, with_token_ids=True).to_json()
    assert list(made) == [*KEYS, "token_ids", "logprobs", "prompt_logprobs"]
    assert made["logprobs"]["tokens"] == ["he"] * 3
    assert made["prompt_logprobs"] == [
        None,
        {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "he"}},
    ]
    chat = OutputRecord.of_output(
        "a", 3, output, with_token_ids=False, logprobs_form=lambda _: {"content": []}
    ).to_json()
    assert list(chat) == [*KEYS, "logprobs", "prompt_logprobs"]
    assert chat["logprobs"] == {"content": []}


def test_several_completions_are_choices_and_the_first_is_the_text() -> None:
    logprobs = ({7: Logprob(-0.5, 1, "he")},)
    outputs = (
        CompletionOutput(0, "a", (7,), "length", None, logprobs=logprobs),
        CompletionOutput(1, "b", (7,), "stop", "x", logprobs=logprobs),
    )
    times = RequestTimes(10.0, (10.25, 11.0))
    output = request_output(outputs=outputs, times=times, prompt_logprobs=(None,))
    made = OutputRecord.of_output("a", 3, output, with_token_ids=True).to_json()
    assert list(made) == [*KEYS, "choices", "prompt_logprobs"]
    assert (made["text"], made["finish_reason"], made["stop_reason"]) == ("a", "length", None)
    assert (made["num_output_tokens"], made["ttft_ms"], made["e2el_ms"]) == (2, 250, 1000)
    assert made["queue_ms"] is None
    first, second = made["choices"]
    assert list(first) == ["index", "text", "finish_reason", "stop_reason", "token_ids", "logprobs"]
    assert (second["index"], second["text"], second["stop_reason"]) == (1, "b", "x")
    assert second["token_ids"] == [7]
    plain = OutputRecord.of_output("a", 3, output, with_token_ids=False).to_json()
    assert "token_ids" not in plain["choices"][0]


def test_the_record_of_an_error_has_the_same_keys_and_a_null_text() -> None:
    bad = BadLine(2, 8, 2, has_own_id=False, code="invalid_json", message="the line is not JSON")
    made = OutputRecord.of_bad_line(bad).to_json()
    assert list(made) == KEYS
    assert made["error"] == {"code": "invalid_json", "message": "line 8: the line is not JSON"}
    assert {name for name, value in made.items() if value is not None} == {"id", "index", "error"}


def test_a_request_that_failed_on_the_way_is_an_error_without_its_partial_text() -> None:
    failed = OutputRecord.of_output("a", 0, request_output(error="nan"), with_token_ids=True)
    assert failed == OutputRecord.failed("a", 0, "generation_failed", "nan")


def test_an_aborted_request_without_tokens_has_no_latency() -> None:
    nothing = CompletionOutput(0, "", (), "abort", None)
    output = request_output(outputs=(nothing,), times=RequestTimes(1.0, ()))
    made = OutputRecord.of_output("a", 0, output, with_token_ids=False)
    assert (made.text, made.ttft_ms, made.e2el_ms, made.num_output_tokens) == ("", None, None, 0)


def test_text_and_error_exclude_each_other() -> None:
    with pytest.raises(AssertionError):
        OutputRecord("a", 0)


def test_ids_keep_their_type() -> None:
    stream = io.BytesIO()
    writer = OrderedRecordWriter(stream)
    ids: list[str | int] = [7, "7", "ä"]
    for index, own_id in enumerate(ids):
        writer.write(OutputRecord(own_id, index, text=""))
    assert [line["id"] for line in written(stream)] == ids


def test_text_is_readable_and_never_breaks_the_line() -> None:
    stream = io.BytesIO()
    text = 'a\nb\r\u2028c\u2029d\x85e "q" 한국어 😀 \x00'
    OrderedRecordWriter(stream).write(record(0, text))
    assert len(stream.getvalue().decode().splitlines()) == 1
    assert "한국어 😀".encode() in stream.getvalue()
    assert written(stream)[0]["text"] == text


@given(st.permutations(range(12)))
def test_records_are_written_in_input_order_whatever_finishes_first(order: list[int]) -> None:
    stream = io.BytesIO()
    writer = OrderedRecordWriter(stream)
    seen: set[int] = set()
    for index in order:
        writer.write(record(index))
        seen.add(index)
        num_ready = next(i for i in range(13) if i not in seen)
        assert [line["index"] for line in written(stream)] == list(range(num_ready))
        assert writer.num_held == len(seen) - num_ready
    assert writer.num_held == 0


def test_a_job_that_goes_on_starts_behind_what_is_there() -> None:
    stream = io.BytesIO()
    writer = OrderedRecordWriter(stream, first_index=5)
    writer.write(record(6))
    assert stream.getvalue() == b""
    writer.write(record(5))
    assert [line["index"] for line in written(stream)] == [5, 6]


def test_a_job_that_ends_early_keeps_what_has_finished() -> None:
    stream = io.BytesIO()
    writer = OrderedRecordWriter(stream)
    for index in (0, 4, 2):
        writer.write(record(index))
    writer.write_held()
    assert [line["index"] for line in written(stream)] == [0, 2, 4]
    assert writer.num_held == 0
    writer.write(record(5))
    assert [line["index"] for line in written(stream)] == [0, 2, 4, 5]


def test_an_index_is_written_once() -> None:
    writer = OrderedRecordWriter(io.BytesIO())
    writer.write(record(0))
    writer.write(record(2))
    for index in (0, 2):
        with pytest.raises(AssertionError):
            writer.write(record(index))


def test_each_line_is_on_disk_once_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with path.open("wb") as stream:
        writer = OrderedRecordWriter(stream)
        for index, size in enumerate([1, 100_000, 10]):
            writer.write(record(index, "x" * size))
            lines = path.read_bytes().split(b"\n")
            assert lines[-1] == b"" and len(lines) == index + 2
