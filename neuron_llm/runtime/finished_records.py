"""How far a batch job had come that did not end, by the records that it left. Knows no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch.prompt_lines import BadLine, PromptLine


@dataclass(frozen=True)
class FinishedRecords:
    """The records at the beginning of an output file that belong to the first lines of a job.

    Attributes:
        num_records: how many; the job goes on with the line of this index.
        num_failed: those with an error.
        num_bytes: where they end in the file.
    """

    num_records: int = 0
    num_failed: int = 0
    num_bytes: int = 0


def find_finished_records(
    path: Path, output: BinaryIO, lines: Iterable[PromptLine | BadLine]
) -> FinishedRecords:
    """Return the records of the first lines, up to the first that is missing.

    An interrupted job may have written records of later lines, and a machine that went down half of
    one; they do not count. One record is in memory at a time.

    Args:
        path: of the output, for messages.
        output: the file, from its beginning.
        lines: of the prompts, from the first.

    Raises:
        NeuronLLMError: the file holds something else than records of these lines.
    """
    num_records = num_failed = num_bytes = 0
    remaining = iter(lines)
    while data := output.readline():
        if not data.endswith(b"\n"):
            break
        record = _parse_record(path, data)
        line = next(remaining, None)
        if line is not None and record["index"] > num_records:
            break
        if line is None or (record["index"], record["id"]) != (num_records, line.id):
            raise _not_of_this_job(path, f"line {num_records + 1} is no record of a prompt in turn")
        num_records += 1
        num_failed += record["error"] is not None
        num_bytes += len(data)
    return FinishedRecords(num_records, num_failed, num_bytes)


def _parse_record(path: Path, data: bytes) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _not_of_this_job(path, "a line is no JSON") from error
    is_record = isinstance(record, dict) and {"id", "index", "error"} <= record.keys()
    if not is_record or not isinstance(record["index"], int):
        raise _not_of_this_job(path, "a line is no record")
    return record


def _not_of_this_job(path: Path, reason: str) -> NeuronLLMError:
    return NeuronLLMError(
        f"`{path}` is not what a job of these prompts left: {reason}",
        hint="give another name with `-o`, or replace the file with `--force`",
    )
