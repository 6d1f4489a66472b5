"""Finding ids that occur twice in a prompts file, before anything is run. Knows no torch."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch.prompt_file import PromptReader, open_prompts
from neuron_llm.runtime.batch.prompt_line import BadLine, PromptId, PromptLine

MAX_REPORTED = 20


@dataclass(frozen=True)
class DuplicateId:
    """An id that two lines share; `1` and `"1"` are different ids.

    Attributes:
        id: the id.
        first_line_number: the first line that has it, from 1.
        second_line_number: the next one.
        is_index: whether one of the two has no id of its own, so that its index stands for it.
    """

    id: PromptId
    first_line_number: int
    second_line_number: int
    is_index: bool = False


def find_duplicate_ids(path: Path) -> list[DuplicateId]:
    """Return the first ids that occur more than once, at most `MAX_REPORTED`, in file order.

    A line without an id counts with its index, under which its result will be written; a line whose
    id cannot be read does not count. Holds eight bytes per line: the digests of all ids, and only
    where two are equal the ids themselves.

    Raises:
        NeuronLLMError: the file cannot be read.
    """
    digests = np.frombuffer(
        array("Q", (_digest(line.id) for line in _lines_with_id(path))), np.uint64
    )
    values, counts = np.unique(digests, return_counts=True)
    repeated = set(values[counts > 1].tolist())
    return list(_duplicates_among(path, repeated)) if repeated else []


def check_unique_ids(path: Path) -> None:
    """Refuse a prompts file in which two lines have one id: their results could not be told apart.

    Raises:
        NeuronLLMError: names each id and both lines.
    """
    duplicates = find_duplicate_ids(path)
    if duplicates:
        first, *others = duplicates
        more = f", and {len(others)} more ids occur twice" if others else ""
        why = " (a line without `id` has its index, from 0)" if first.is_index else ""
        raise NeuronLLMError(
            f"id {json.dumps(first.id)} is in line {first.first_line_number} and in line "
            f"{first.second_line_number} of `{path}`{why}{more}",
            hint="give every line an `id` of its own, or none at all",
        )


def _lines_with_id(path: Path) -> Iterator[PromptLine | BadLine]:
    with open_prompts(path) as stream:
        for line in PromptReader(stream):
            if isinstance(line, PromptLine) or line.has_own_id:
                yield line


def _duplicates_among(path: Path, repeated: set[int]) -> Iterator[DuplicateId]:
    first_lines: dict[PromptId, PromptLine | BadLine] = {}
    reported: set[PromptId] = set()
    for line in _lines_with_id(path):
        if _digest(line.id) not in repeated or line.id in reported:
            continue
        if line.id not in first_lines:
            first_lines[line.id] = line
            continue
        reported.add(line.id)
        first = first_lines[line.id]
        is_index = not (first.has_own_id and line.has_own_id)
        yield DuplicateId(line.id, first.line_number, line.line_number, is_index)
        if len(reported) == MAX_REPORTED:
            return


def _digest(line_id: PromptId) -> int:
    data = json.dumps(line_id).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
