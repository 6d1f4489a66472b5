"""What `LLM.generate` and `LLM.chat` take for prompts, and what they refuse before running any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import Compiled

from neuron_llm import LLM, SamplingParams
from neuron_llm.errors import RequestError
from neuron_llm.runtime.llm_prompts import parse_prompts

GREEDY = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.mark.parametrize(
    ("value", "prompts"),
    [
        ("text", ["text"]),
        ("", [""]),
        ([], []),
        (["a", "b"], ["a", "b"]),
        (("a",), ["a"]),
        ([1, 2], [[1, 2]]),
        ((1, 2), [[1, 2]]),
        (range(3), [[0, 1, 2]]),
        ([[1, 2], "a", (3,)], [[1, 2], "a", [3]]),
        ([[]], [[]]),
        ({"prompt": "a"}, ["a"]),
        ({"prompt_token_ids": [1, 2]}, [[1, 2]]),
        ({"prompt_token_ids": np.array([1, 2]), "prompt": None}, [[1, 2]]),
        ([{"prompt": "a"}, {"prompt_token_ids": (1,)}, [2]], ["a", [1], [2]]),
        (np.array([1, 2]), [[1, 2]]),
        (np.array([[1, 2], [3, 4]], np.int32), [[1, 2], [3, 4]]),
        (np.array([[1], [2]]), [[1], [2]]),
        ([np.int64(1), np.uint8(2)], [[1, 2]]),
        (torch.tensor([1, 2]), [[1, 2]]),
        (torch.tensor([[1], [2]]), [[1], [2]]),
        ([torch.tensor([1, 2]), "a"], [[1, 2], "a"]),
    ],
)
def test_every_form_becomes_texts_and_lists_of_integers(value: object, prompts: object) -> None:
    parsed = parse_prompts(value)
    assert parsed == prompts
    token_lists = [prompt for prompt in parsed if not isinstance(prompt, str)]
    assert {type(token_id) for ids in token_lists for token_id in ids} <= {int}


def test_a_generator_of_prompts_is_a_list_of_them() -> None:
    assert parse_prompts(text for text in ("a", "b")) == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (None, "`prompts` is of type `NoneType`"),
        (5, "`prompts` is of type `int`"),
        (b"bytes", "`prompts` is of type `bytes`"),
        ({1, 2}, "`prompts` is of type `set`"),
        (np.int64(3), "`prompts` is of type `int64`"),
        (np.array(3), "`prompts` is of type `ndarray`"),
        (torch.tensor(3), "`prompts` is of type `Tensor`"),
        ([None], r"`prompts\[0\]` is of type `NoneType`"),
        ([1.0, 2.0], r"`prompts\[0\]` is of type `float`"),
        ([True, False], r"`prompts\[0\]` is of type `bool`"),
        ([1, True], r"`prompts\[0\]` is of type `int`"),
        (np.array([1.0]), r"`prompts\[0\]` is of type `float64`"),
        (np.array([True]), r"`prompts\[0\]` is of type `bool"),
        (torch.tensor([True]), r"`prompts\[0\]` is of type `Tensor`"),
        ([10**5000], r"`prompts\[0\]` is of type `int`"),
        (["a", 1], r"`prompts\[1\]` is of type `int`"),
        ([1, "a"], r"`prompts\[0\]` is of type `int`"),
        (["a", b"b"], r"`prompts\[1\]` is of type `bytes`"),
        ([[1, 2.5]], r"`prompts\[0\]` is of type `list`"),
        ([[[1, 2]]], r"`prompts\[0\]` is of type `list`"),
        ({}, r"`prompt` has the keys \[\], not one of"),
        ({"text": "a"}, r"`prompt` has the keys \['text'\]"),
        ({"prompt": "a", "prompt_token_ids": [1]}, "`prompt` has the keys"),
        ([{"prompt": "a", "multi_modal_data": {}}], r"`prompts\[0\]` has the keys"),
        ({"prompt": [1, 2]}, r"`prompt\['prompt'\]` is of type `list`"),
        ({"prompt_token_ids": "ab"}, r"`prompt\['prompt_token_ids'\]` is of type `str`"),
        ({"prompt_token_ids": [[1]]}, r"`prompt\['prompt_token_ids'\]` is of type `list`"),
    ],
)
def test_what_is_no_prompt_is_refused_by_its_place_and_type(value: object, where: str) -> None:
    with pytest.raises(RequestError, match=where) as raised:
        parse_prompts(value)
    assert raised.value.code == "invalid_prompt"


def test_one_prompt_in_every_form_has_one_answer(llm: LLM) -> None:
    forms: list[Any] = [[5, 6, 7], {"prompt_token_ids": [5, 6, 7]}, np.array([5, 6, 7])]
    answers = {llm.generate(form, GREEDY)[0].outputs[0].token_ids for form in forms}
    assert len(answers) == 1
    text = llm.generate("hello", GREEDY)[0].outputs
    assert llm.generate({"prompt": "hello"}, GREEDY)[0].outputs == text
    assert [o.outputs for o in llm.generate((t for t in ["hello"] * 2), GREEDY)] == [text] * 2


@pytest.mark.parametrize(
    ("params", "kind"),
    [(5, "int"), ("x", "str"), ({"top_k": 1}, "str"), ([None], "NoneType"), ([GREEDY, 1], "int")],
)
def test_what_are_no_sampling_parameters_is_refused(llm: LLM, params: Any, kind: str) -> None:
    with pytest.raises(RequestError, match=f"are of type `{kind}`, not `SamplingParams`") as raised:
        llm.generate(["a"], params)
    assert raised.value.code == "invalid_sampling"
    assert not llm.engine.has_unfinished_requests()


@pytest.mark.parametrize(
    "messages", [None, "hi", [], {}, [5], [{"role": "user"}], [{"content": "x"}]]
)
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError) as raised:
        llm.chat(messages, GREEDY)
    assert raised.value.code == "invalid_messages"


def test_a_chat_joins_the_text_parts_of_a_message(llm: LLM) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    joined = llm.chat([{"role": "user", "content": "a\nb"}], GREEDY)
    reply = llm.chat(({"role": "user", "content": parts},), GREEDY)
    assert reply.prompt_token_ids == joined.prompt_token_ids
