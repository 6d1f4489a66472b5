from __future__ import annotations

import pytest

from neuron_llm.errors import RequestError
from neuron_llm.runtime.text.messages import parse_messages

TURN = {"role": "user", "content": "x"}


def test_string_contents_and_other_keys_stay_as_they_are() -> None:
    messages = [{"role": "system", "content": "", "name": "x"}, {"role": "user", "content": "hi"}]
    assert parse_messages(messages) == messages


def test_text_parts_are_joined_line_by_line() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert parse_messages([{"role": "user", "content": parts}]) == [
        {"role": "user", "content": "one\ntwo"}
    ]


@pytest.mark.parametrize(
    ("messages", "code", "fault"),
    [
        ([], "invalid_messages", "at least one message"),
        ("hi", "invalid_messages", "at least one message"),
        ({"role": "user", "content": "x"}, "invalid_messages", "at least one message"),
        (["hi"], "invalid_messages", "messages[0]"),
        ([{"content": "x"}], "invalid_messages", "messages[0].role"),
        ([{"role": 1, "content": "x"}], "invalid_messages", "messages[0].role"),
        ([{"role": "user"}], "invalid_messages", "messages[0].content"),
        ([{"role": "user", "content": 5}], "invalid_messages", "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "invalid_messages", "without `text`"),
        ([{"role": "user", "content": ["x"]}], "unsupported_content", "part of type None"),
        (
            [
                {"role": "user", "content": "x"},
                {"role": "user", "content": [{"type": "image_url"}]},
            ],
            "unsupported_content",
            "`messages[1].content` holds a part of type 'image_url'",
        ),
    ],
)
def test_what_is_no_conversation_is_refused_by_position(
    messages: object, code: str, fault: str
) -> None:
    with pytest.raises(RequestError) as raised:
        parse_messages(messages)
    assert raised.value.code == code
    assert fault in raised.value.message
