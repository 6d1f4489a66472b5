"""The results of a batch job: one JSON line per prompt, in input order. Knows no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from neuron_llm.runtime.batch.metrics import RequestLatency
from neuron_llm.runtime.batch.openai_logprobs import (
    LogprobsForm,
    completion_logprobs,
    prompt_logprobs,
)
from neuron_llm.runtime.batch.prompt_line import BadLine, PromptId
from neuron_llm.runtime.engine.outputs import CompletionOutput, RequestOutput

# Characters that JSON leaves as they are and that some readers take for the end of a line.
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class RecordError:
    """Why a line has no result.

    Attributes:
        code: a stable word for machines, such as `invalid_json`.
        message: for people.
    """

    code: str
    message: str


@dataclass(frozen=True)
class OutputRecord:
    """The result of one line; `text` is None exactly if `error` is not.

    A line that asked for several completions has them in `choices`; `text`, `finish_reason` and
    `stop_reason` are then those of the first, and the numbers those of all together.

    Attributes:
        id: of the line.
        index: of the line; the order of the records.
        text: what was generated.
        finish_reason: `stop`, `length` or `abort`.
        stop_reason: the stop string or stop token that ended it.
        num_prompt_tokens: tokens of the prompt.
        num_cached_tokens: how many of them were found in the prefix cache.
        num_output_tokens: tokens generated.
        queue_ms: from arrival to the begin of the first step, in milliseconds.
        ttft_ms: from arrival to the first token.
        e2el_ms: from arrival to the last token.
        error: why there is no text.
        details: keys that are there only if they were asked for: `token_ids`, `logprobs`,
            `prompt_logprobs`, `choices`.
    """

    id: PromptId
    index: int
    text: str | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    num_output_tokens: int | None = None
    queue_ms: float | None = None
    ttft_ms: float | None = None
    e2el_ms: float | None = None
    error: RecordError | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Hold the one rule by which a reader tells a result from an error."""
        assert (self.text is None) == (self.error is not None), "text or error, never both"

    @classmethod
    def failed(cls, line_id: PromptId, index: int, code: str, message: str) -> OutputRecord:
        """Return the record of a line that gave no result."""
        return cls(line_id, index, error=RecordError(code, message))

    @classmethod
    def of_bad_line(cls, line: BadLine) -> OutputRecord:
        """Return the record of a line that could not be run; the message names the line."""
        message = f"line {line.line_number}: {line.message}"
        return cls.failed(line.id, line.index, line.code, message)

    @classmethod
    def of_output(
        cls,
        line_id: PromptId,
        index: int,
        output: RequestOutput,
        *,
        with_token_ids: bool,
        logprobs_form: LogprobsForm = completion_logprobs,
    ) -> OutputRecord:
        """Return the record of a request that has finished.

        Args:
            line_id: of the line.
            index: of the line.
            output: what it came to.
            with_token_ids: include the tokens.
            logprobs_form: how log probabilities are written, if there are any.
        """
        if output.error is not None:
            return cls.failed(line_id, index, "generation_failed", output.error)
        first = output.outputs[0]
        latency = RequestLatency.of(output.times) if output.times.tokens else None
        return cls(
            line_id,
            index,
            text=first.text,
            finish_reason=first.finish_reason,
            stop_reason=first.stop_reason,
            num_prompt_tokens=len(output.prompt_token_ids),
            num_cached_tokens=output.num_cached_tokens,
            num_output_tokens=sum(len(completion.token_ids) for completion in output.outputs),
            queue_ms=latency.queue_ms if latency else None,
            ttft_ms=latency.ttft_ms if latency else None,
            e2el_ms=latency.e2el_ms if latency else None,
            details=_all_details(output, with_token_ids, logprobs_form),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON keys and values, the details last."""
        record = dict(vars(self))
        record["error"] = None if self.error is None else dict(vars(self.error))
        for name in ("queue_ms", "ttft_ms", "e2el_ms"):
            if record[name] is not None:
                record[name] = round(record[name], 3)
        details = record.pop("details")
        return {**record, **details}


def _all_details(
    output: RequestOutput, with_token_ids: bool, logprobs_form: LogprobsForm
) -> dict[str, Any]:
    first, *others = output.outputs
    if others:
        choices = [_choice(one, with_token_ids, logprobs_form) for one in output.outputs]
        details: dict[str, Any] = {"choices": choices}
    else:
        details = _details(first, with_token_ids, logprobs_form)
    if output.prompt_logprobs is not None:
        details["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
    return details


def _choice(
    completion: CompletionOutput, with_token_ids: bool, logprobs_form: LogprobsForm
) -> dict[str, Any]:
    return {
        "index": completion.index,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        **_details(completion, with_token_ids, logprobs_form),
    }


def _details(
    completion: CompletionOutput, with_token_ids: bool, logprobs_form: LogprobsForm
) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if with_token_ids:
        details["token_ids"] = list(completion.token_ids)
    if completion.logprobs is not None:
        details["logprobs"] = logprobs_form(completion)
    return details


class OrderedRecordWriter:
    """Writes records in the order of their indices, each as soon as all earlier ones are there.

    Args:
        stream: a binary file, at its end.
        first_index: of the first record to come; larger than 0 where a job goes on.
    """

    def __init__(self, stream: BinaryIO, *, first_index: int = 0) -> None:
        self._stream = stream
        self._next_index = first_index
        # Lines rather than records: a finished text is kept once, in the form it will be written.
        self._held: dict[int, bytes] = {}

    @property
    def num_held(self) -> int:
        """Records that wait for an earlier one. Admitting fewer lines ahead keeps it small."""
        return len(self._held)

    def write(self, record: OutputRecord) -> None:
        """Write the record and those that waited for it, or hold it until its turn."""
        assert record.index >= self._next_index and record.index not in self._held, (
            f"index {record.index} has been written"
        )
        self._held[record.index] = _line_of(record)
        while (line := self._held.pop(self._next_index, None)) is not None:
            _write_line(self._stream, line)
            self._next_index += 1

    def write_held(self) -> None:
        """Write what still waits, in order, leaving gaps: for a job that ends early."""
        for index in sorted(self._held):
            _write_line(self._stream, self._held.pop(index))
            self._next_index = index + 1


def _line_of(record: OutputRecord) -> bytes:
    text = json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False)
    for character, escape in _LINE_ENDS.items():
        text = text.replace(character, escape)
    return text.encode("utf-8") + b"\n"


def _write_line(stream: BinaryIO, line: bytes) -> None:
    stream.write(line)
    stream.flush()
