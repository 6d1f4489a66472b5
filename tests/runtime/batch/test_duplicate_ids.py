from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.batch import duplicate_ids
from neuron_llm.runtime.batch.duplicate_ids import DuplicateId, check_unique_ids, find_duplicate_ids


def write(tmp_path: Path, *lines: dict[str, Any] | str) -> Path:
    path = tmp_path / "prompts.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def prompt(own_id: str | int | None = None) -> dict[str, Any]:
    return {"prompt": "x"} if own_id is None else {"id": own_id, "prompt": "x"}


def test_different_ids_are_no_duplicates(tmp_path: Path) -> None:
    path = write(tmp_path, prompt("a"), prompt("b"), prompt(1), prompt("1"), prompt())
    assert find_duplicate_ids(path) == []
    check_unique_ids(path)


def test_a_file_without_lines_or_ids_has_no_duplicates(tmp_path: Path) -> None:
    assert find_duplicate_ids(write(tmp_path)) == []
    assert find_duplicate_ids(write(tmp_path, *[prompt()] * 50)) == []


def test_an_id_at_lines_two_and_seven_is_refused_naming_both(tmp_path: Path) -> None:
    between = [prompt(own_id) for own_id in "bcd"]
    path = write(tmp_path, prompt("a"), prompt("same"), "", *between, prompt("same"))
    assert find_duplicate_ids(path) == [DuplicateId("same", 2, 7)]
    with pytest.raises(NeuronLLMError, match='id "same" is in line 2 and in line 7') as raised:
        check_unique_ids(path)
    assert raised.value.hint is not None


def test_an_id_that_occurs_three_times_is_reported_once(tmp_path: Path) -> None:
    path = write(tmp_path, prompt(5), prompt("x"), prompt(5), prompt("x"), prompt(5))
    assert find_duplicate_ids(path) == [DuplicateId(5, 1, 3), DuplicateId("x", 2, 4)]
    with pytest.raises(NeuronLLMError, match="and 1 more ids occur twice"):
        check_unique_ids(path)


def test_custom_ids_count_too(tmp_path: Path) -> None:
    batch = {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x"}}
    assert find_duplicate_ids(write(tmp_path, batch, prompt("a"))) == [DuplicateId("a", 1, 2)]


def test_the_index_of_a_line_without_id_may_not_be_the_id_of_another(tmp_path: Path) -> None:
    path = write(tmp_path, prompt(1), prompt())
    assert find_duplicate_ids(path) == [DuplicateId(1, 1, 2, is_index=True)]
    with pytest.raises(NeuronLLMError, match=r"line 2 of `.*` \(a line without `id` has its index"):
        check_unique_ids(path)


def test_a_refused_line_counts_only_if_its_id_could_be_read(tmp_path: Path) -> None:
    assert find_duplicate_ids(write(tmp_path, prompt("a"), {"id": "a"})) == [DuplicateId("a", 1, 2)]
    # The index of the line that is no JSON is 2.
    path = write(tmp_path, prompt(1), prompt(2), "not json", prompt(4))
    assert find_duplicate_ids(path) == []


def test_equal_digests_of_different_ids_are_no_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicate_ids, "_digest", lambda line_id: 7)
    path = write(tmp_path, prompt("a"), prompt("b"), prompt("c"), prompt("b"))
    assert find_duplicate_ids(path) == [DuplicateId("b", 2, 4)]


def test_only_the_first_few_are_reported(tmp_path: Path) -> None:
    ids = [f"id{index}" for index in range(200)]
    found = find_duplicate_ids(write(tmp_path, *(prompt(own_id) for own_id in ids + ids)))
    assert [duplicate.id for duplicate in found] == ids[:20]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NeuronLLMError, match="cannot read the prompts file"):
        find_duplicate_ids(tmp_path / "nowhere.jsonl")
