from __future__ import annotations

import json
import math
from typing import Any

import pytest

from neuron_llm.runtime.batch.openai_logprobs import (
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
)
from neuron_llm.runtime.engine.outputs import CompletionOutput, Logprob


def completion(*positions: list[tuple[int, float, int, str]]) -> CompletionOutput:
    """Return a completion of the first token of each position."""
    return CompletionOutput(
        0, "", tuple(position[0][0] for position in positions), "length", None,
        logprobs=tuple(
            {token_id: Logprob(number, rank, text) for token_id, number, rank, text in position}
            for position in positions
        ),
    )  # fmt: skip


DRAWN = completion(
    [(5, -3.0, 4, " he"), (1, -0.5, 1, "é"), (2, -1.5, 2, "b")],
    [(1, -0.25, 1, "é"), (2, -2.5, 2, "b")],
)


def test_the_completions_object_has_parallel_lists() -> None:
    assert completion_logprobs(DRAWN) == {
        "tokens": [" he", "é"],
        "token_logprobs": [-3.0, -0.25],
        "top_logprobs": [{" he": -3.0, "é": -0.5, "b": -1.5}, {"é": -0.25, "b": -2.5}],
        "text_offset": [0, 3],
    }


def test_of_tokens_with_the_same_text_the_first_is_kept() -> None:
    same = completion([(5, -3.0, 3, ""), (1, -0.5, 1, ""), (2, -1.0, 2, "a")])
    assert completion_logprobs(same)["top_logprobs"] == [{"": -3.0, "a": -1.0}]


def test_the_chat_object_has_the_most_likely_tokens_in_order() -> None:
    first, second = chat_logprobs(DRAWN, num_top=2)["content"]
    assert first == {
        "token": " he",
        "logprob": -3.0,
        "bytes": [32, 104, 101],
        "top_logprobs": [
            {"token": "é", "logprob": -0.5, "bytes": [195, 169]},
            {"token": "b", "logprob": -1.5, "bytes": [98]},
        ],
    }
    assert [one["token"] for one in second["top_logprobs"]] == ["é", "b"]


@pytest.mark.parametrize(("num_top", "counts"), [(0, [0, 0]), (1, [1, 1]), (-1, [3, 2])])
def test_the_chat_object_has_as_many_as_were_asked_for(num_top: int, counts: list[int]) -> None:
    content = chat_logprobs(DRAWN, num_top=num_top)["content"]
    assert [len(one["top_logprobs"]) for one in content] == counts


def test_the_prompt_has_objects_by_token_id_and_null_first() -> None:
    by_token = {7: Logprob(-1.5, 2, "a"), 9: Logprob(-0.5, 1, "b")}
    assert prompt_logprobs([None, by_token]) == [
        None,
        {
            "7": {"logprob": -1.5, "rank": 2, "decoded_token": "a"},
            "9": {"logprob": -0.5, "rank": 1, "decoded_token": "b"},
        },
    ]


@pytest.mark.parametrize("number", [-math.inf, math.nan, -1e5])
def test_what_json_cannot_hold_is_the_number_that_openai_writes(number: float) -> None:
    odd = completion([(5, number, 1, "a")])
    forms: list[Any] = [
        completion_logprobs(odd),
        chat_logprobs(odd, num_top=1),
        prompt_logprobs(odd.logprobs or ()),
    ]
    text = json.dumps(forms, allow_nan=False)
    assert text.count("-9999.0") == 2 + 2 + 1


def test_a_completion_without_tokens_has_empty_lists() -> None:
    nothing = completion()
    assert set(map(len, completion_logprobs(nothing).values())) == {0}
    assert chat_logprobs(nothing, num_top=1) == {"content": []}
