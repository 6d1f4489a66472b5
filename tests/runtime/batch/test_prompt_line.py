from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.runtime.batch.prompt_line import BadLine, PromptLine, parse_line
from neuron_llm.runtime.sampling.sampling_params import SamplingParams


def good(fields: dict[str, Any], index: int = 4) -> PromptLine:
    line = parse_line(json.dumps(fields).encode(), index, line_number=9)
    assert isinstance(line, PromptLine), line
    return line


def bad(data: bytes | dict[str, Any]) -> BadLine:
    line = parse_line(data if isinstance(data, bytes) else json.dumps(data).encode(), 4, 9)
    assert isinstance(line, BadLine), line
    return line


def chat_line(**body: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "hi"}], **body}
    return {"custom_id": "c", "method": "POST", "url": "/v1/chat/completions", "body": body}


def test_a_plain_prompt_takes_its_index_for_an_id() -> None:
    line = good({"prompt": "Hello"})
    assert (line.id, line.index, line.line_number) == (4, 4, 9)
    assert (line.prompt, line.messages, line.prompt_token_ids) == ("Hello", None, None)
    assert (line.sampling, line.unknown_fields) == ({}, ())


def test_messages_and_token_ids_are_prompts_too() -> None:
    messages = [{"role": "user", "content": "hi"}]
    line = good({"messages": messages})
    assert (line.prompt, line.messages, line.prompt_token_ids) == (None, messages, None)
    line = good({"prompt_token_ids": [0, 5]})
    assert (line.prompt, line.messages, line.prompt_token_ids) == (None, None, [0, 5])


def test_a_null_prompt_counts_as_absent() -> None:
    assert good({"prompt": "x", "messages": None, "prompt_token_ids": None}).prompt == "x"


def test_an_empty_prompt_is_left_to_the_tokenizer() -> None:
    assert good({"prompt": ""}).prompt == ""


@pytest.mark.parametrize("own_id", ["a", "", 0, -7, 10**30, "1"])
def test_an_id_keeps_its_value_and_type(own_id: str | int) -> None:
    for name in ("id", "custom_id"):
        line = good({name: own_id, "prompt": "x"})
        assert line.id == own_id and type(line.id) is type(own_id)


def test_sampling_fields_are_taken_as_they_are() -> None:
    line = good({"prompt": "x", "top_k": 5, "stop": ["a"], "max_tokens": None, "seed": "bad"})
    assert line.sampling == {"top_k": 5, "stop": ["a"], "max_tokens": None, "seed": "bad"}


@pytest.mark.parametrize("max_tokens", [{"max_tokens": 50}, {}])
def test_max_completion_tokens_wins_over_max_tokens(max_tokens: dict[str, int]) -> None:
    for line in (
        good({"prompt": "x", "max_completion_tokens": 7, **max_tokens}),
        good(chat_line(max_completion_tokens=7, **max_tokens)),
    ):
        assert line.sampling == {"max_tokens": 7}
    assert good({"prompt": "x", "max_completion_tokens": None, "max_tokens": 3}).sampling == {
        "max_tokens": 3
    }


def test_a_chat_line_of_a_batch_file_is_understood() -> None:
    line = good(chat_line(model="m", temperature=0.5, max_completion_tokens=9, n=1, stream=False))
    assert line.id == "c"
    assert line.messages == [{"role": "user", "content": "hi"}]
    assert line.sampling == {"temperature": 0.5, "max_tokens": 9, "n": 1}
    assert line.unknown_fields == ()


def test_a_chat_line_asks_for_log_probabilities_as_in_openais_chat() -> None:
    line = good(chat_line(logprobs=True, top_logprobs=3, n=2, logit_bias={"5": -100}))
    assert line.sampling == {"logprobs": 3, "n": 2, "logit_bias": {"5": -100}}
    assert line.unknown_fields == ()


@pytest.mark.parametrize(
    ("prompt", "text", "token_ids"), [("hi", "hi", None), ([3, 4], None, [3, 4])]
)
def test_a_completion_line_of_a_batch_file_is_understood(
    prompt: object, text: str | None, token_ids: list[int] | None
) -> None:
    line = good({"url": "/v1/completions", "body": {"prompt": prompt, "top_p": 0.5}})
    assert (line.prompt, line.prompt_token_ids, line.sampling) == (text, token_ids, {"top_p": 0.5})


def test_unknown_fields_are_named_at_both_levels() -> None:
    assert good({"prompt": "x", "temprature": 1, "note": 2}).unknown_fields == (
        "temprature",
        "note",
    )
    assert good({**chat_line(temprature=1), "note": 2}).unknown_fields == ("temprature", "note")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", "invalid_json"),
        (b"\x00", "invalid_json"),
        (b'{"prompt": "x"} {"prompt": "y"}', "invalid_json"),
        (b"{'prompt': 'x'}", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"prompt": "\xff"}', "invalid_utf8"),
        (b'{"prompt": "\xed\xa0\xbd"}', "invalid_utf8"),
        (rb'{"prompt": "\ud83d"}', "invalid_unicode"),
        (rb'{"id": "\udc00", "prompt": "x"}', "invalid_unicode"),
        (b'"hello"', "not_an_object"),
        (b"[]", "not_an_object"),
        (b"null", "not_an_object"),
        ({"id": 1.5, "prompt": "x"}, "invalid_id"),
        ({"id": True, "prompt": "x"}, "invalid_id"),
        ({"custom_id": ["a"], "prompt": "x"}, "invalid_id"),
        ({}, "missing_prompt"),
        ({"prompt": None}, "missing_prompt"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "y"}]}, "ambiguous_prompt"),
        ({"prompt": "x", "prompt_token_ids": []}, "ambiguous_prompt"),
        ({"prompt": 5}, "invalid_prompt"),
        ({"prompt": ["a", "b"]}, "invalid_prompt"),
        ({"prompt": {"text": "a"}}, "invalid_prompt"),
        ({"prompt_token_ids": "12"}, "invalid_prompt"),
        ({"prompt_token_ids": [1, -1]}, "invalid_prompt"),
        ({"prompt_token_ids": [1.0]}, "invalid_prompt"),
        ({"prompt_token_ids": [True]}, "invalid_prompt"),
        ({"prompt_token_ids": [[1]]}, "invalid_prompt"),
        ({"prompt_token_ids": []}, "empty_prompt"),
        ({"messages": []}, "invalid_messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "unsupported_content",
        ),
        ({"prompt": "x", "echo": True}, "unsupported_field"),
        ({"prompt": "x", "logprob_token_ids": [5]}, "unsupported_field"),
        (chat_line(top_logprobs=3), "invalid_sampling"),
        (chat_line(tools=[{"type": "function"}]), "unsupported_field"),
        (chat_line(stream=True), "unsupported_field"),
        ({"url": "/v1/embeddings", "body": {"input": "x"}}, "unsupported_url"),
        ({"body": {"prompt": "x"}}, "unsupported_url"),
        ({"url": ["/v1/completions"], "body": {"prompt": "x"}}, "unsupported_url"),
        ({"method": "GET", "url": "/v1/completions", "body": {"prompt": "x"}}, "invalid_method"),
        ({"url": "/v1/completions"}, "invalid_body"),
        ({"url": "/v1/completions", "body": "x"}, "invalid_body"),
        ({"url": "/v1/completions", "body": chat_line()["body"]}, "missing_prompt"),
        ({"url": "/v1/chat/completions", "body": {"prompt": "x"}}, "missing_prompt"),
    ],
)
def test_a_line_that_cannot_be_run_says_why(line: bytes | dict[str, Any], code: str) -> None:
    refused = bad(line)
    assert refused.code == code
    assert (refused.index, refused.line_number) == (4, 9)
    assert refused.message and len(refused.message) < 300


def test_a_bad_line_keeps_the_id_that_could_be_read() -> None:
    refused = bad({"id": "x7"})
    assert (refused.id, refused.has_own_id) == ("x7", True)
    refused = bad(b'{"id": "x7", ')
    assert (refused.id, refused.has_own_id) == (4, False)


def test_a_message_names_what_the_line_has_too_many_of() -> None:
    refused = bad({"prompt": "x", "prompt_token_ids": [1]})
    assert refused.message == (
        "the line needs exactly one of `prompt`, `messages`, `prompt_token_ids`, "
        "has `prompt` and `prompt_token_ids`"
    )


def test_escaped_characters_that_are_whole_are_accepted() -> None:
    line = parse_line(rb'{"prompt": "\ud83d\ude00 \u0000"}', 0, 1)
    assert isinstance(line, PromptLine) and line.prompt == "😀 \0"


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_line_or_an_error_never_an_exception(data: bytes) -> None:
    assert isinstance(parse_line(data, 0, 1), PromptLine | BadLine)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["prompt", "messages", "id", "role", "content", "type", "text", "url"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    fields=st.dictionaries(
        st.sampled_from(
            ["prompt", "messages", "prompt_token_ids", "id", "url", "body", "method", "n", "stop"]
        ),
        JSON,
        max_size=5,
    )
)
def test_any_object_is_a_line_or_an_error_never_an_exception(fields: dict[str, Any]) -> None:
    line = parse_line(json.dumps(fields).encode(), 0, 1)
    if isinstance(line, PromptLine):
        given_prompts = [line.prompt, line.messages, line.prompt_token_ids]
        assert sum(prompt is not None for prompt in given_prompts) == 1


def test_the_fields_of_a_line_are_a_layer_of_sampling_parameters() -> None:
    line = good({"prompt": "x", "temperature": 0, "stop": "END", "n": 1, "top_p": None})
    params = SamplingParams.merged(line.sampling, {"max_tokens": 5})
    assert params == SamplingParams(temperature=0, stop="END", max_tokens=5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"prompt": "x", "n": 1, "prompt": "y"}', "the line has the key 'prompt' twice"),
        (b'{"messages": [{"role": "user", "role": "x"}]}', "the line has the key 'role' twice"),
        (b'{"a\\u001b": 1, "a\\u001b": 1}', "the line has the key 'a\\x1b' twice"),
        (b"[" * 100_000, "the line is nested too deeply"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", "the line holds an integer of thousands of digits"),
    ],
)
def test_what_json_leaves_open_is_refused_in_words_of_our_own(line: bytes, message: str) -> None:
    parsed = parse_line(line, 0, 1)
    assert isinstance(parsed, BadLine)
    assert (parsed.code, parsed.message) == ("invalid_json", message)
