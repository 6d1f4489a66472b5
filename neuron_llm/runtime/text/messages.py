"""Conversations as clients send them, in the one form that chat templates take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuron_llm.errors import RequestError

Message = Mapping[str, Any]
"""One turn: `role` and `content` are strings; other keys go to the template as they are."""


def parse_messages(value: object) -> list[Message]:
    """Check a list of messages and join the text parts of each content, one a line.

    Clients send a content as a string or as a list of `{"type": "text", "text": …}`.

    Raises:
        RequestError: it is no such list (code `invalid_messages`), or a part is no text (code
            `unsupported_content`).
    """
    if not isinstance(value, list) or not value:
        raise _invalid("`messages` must be a list of at least one message")
    return [_parse_message(message, index) for index, message in enumerate(value)]


def _parse_message(message: object, index: int) -> Message:
    if not isinstance(message, dict):
        raise _invalid(f"`messages[{index}]` is no object with `role` and `content`")
    if not isinstance(message.get("role"), str):
        raise _invalid(f"`messages[{index}].role` must be a string")
    return {**message, "content": _parse_content(message.get("content"), index)}


def _parse_content(content: object, index: int) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _invalid(f"`messages[{index}].content` must be a string or a list of text parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise RequestError(
                f"`messages[{index}].content` holds a part of type {kind!r:.40}, only `text` is "
                "supported",
                code="unsupported_content",
            )
        if not isinstance(part.get("text"), str):
            raise _invalid(f"`messages[{index}].content` holds a text part without `text`")
        texts.append(part["text"])
    return "\n".join(texts)


def _invalid(message: str) -> RequestError:
    return RequestError(
        message,
        code="invalid_messages",
        hint='for example `[{"role": "user", "content": "Hello"}]`',
    )
