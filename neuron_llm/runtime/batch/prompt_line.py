"""One line of a prompts file: what it asks for, or why it is refused. Knows no torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.runtime.batch.request_fields import OPENAI_FIELDS, sampling_fields
from neuron_llm.runtime.sampling.sampling_params import SAMPLING_FIELDS
from neuron_llm.runtime.sampling.unsupported_fields import (
    UNSUPPORTED_FIELDS,
    refuse_unsupported_fields,
)
from neuron_llm.runtime.text.messages import Message, parse_messages

PromptId = str | int

PROMPT_FIELDS = ("prompt", "messages", "prompt_token_ids")
_URL_FIELDS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
_ENVELOPE_FIELDS = frozenset({"custom_id", "method", "url", "body"})
# Fields that say nothing about the result, or that the artifact has decided already.
_SILENT_FIELDS = frozenset({"id", "custom_id", "model", "user", "metadata", "store"})


@dataclass(frozen=True, kw_only=True)
class PromptLine:
    """A line that can be run.

    Attributes:
        index: counts the lines that are not blank, from 0.
        line_number: in the file, from 1.
        id: the line's own, or else `index`.
        has_own_id: whether it is the line's own.
        prompt: plain text; exactly one of the three is not None.
        messages: a conversation.
        prompt_token_ids: tokens.
        sampling: the sampling fields that the line gives, a layer for `SamplingParams.merged`.
        unknown_fields: names that mean nothing here.
    """

    index: int
    line_number: int
    id: PromptId
    has_own_id: bool
    prompt: str | None
    messages: list[Message] | None
    prompt_token_ids: list[int] | None
    sampling: Mapping[str, Any]
    unknown_fields: tuple[str, ...]


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be run; the others are not touched.

    Attributes:
        index: see `PromptLine`.
        line_number: see `PromptLine`.
        id: the line's own where it could be read, or else `index`.
        has_own_id: whether it could be read.
        code: a stable word, such as `invalid_json`.
        message: what is wrong.
    """

    index: int
    line_number: int
    id: PromptId
    has_own_id: bool
    code: str
    message: str


def parse_line(data: bytes, index: int, line_number: int) -> PromptLine | BadLine:
    """Parse one line, without its end."""
    own_id: PromptId | None = None
    try:
        fields = _parse_object(data)
        own_id = _read_id(fields)
        request = _request_of(fields)
        prompt, messages, token_ids = _prompt_of(request)
        refuse_unsupported_fields(request)
        return PromptLine(
            index=index,
            line_number=line_number,
            id=index if own_id is None else own_id,
            has_own_id=own_id is not None,
            prompt=prompt,
            messages=messages,
            prompt_token_ids=token_ids,
            sampling=sampling_fields(request),
            unknown_fields=_unknown_fields(fields, request),
        )
    except RequestError as error:
        return BadLine(
            index=index,
            line_number=line_number,
            id=index if own_id is None else own_id,
            has_own_id=own_id is not None,
            code=error.code,
            message=error.message,
        )


def _read_id(fields: Mapping[str, Any]) -> PromptId | None:
    own_id = fields.get("id")
    if own_id is None:
        own_id = fields.get("custom_id")
    if own_id is None or isinstance(own_id, str):
        return own_id
    if not isinstance(own_id, int) or isinstance(own_id, bool):
        raise RequestError(f"`id` is {own_id!r:.80}, not a string or integer", code="invalid_id")
    return own_id


def _parse_object(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"the line is not UTF-8 (byte {error.start + 1})", code="invalid_utf8"
        ) from error
    try:
        value = json.loads(text, object_pairs_hook=_object_of_pairs)
        if "\\u" in text:
            # JSON can spell half of a surrogate pair; no tokenizer takes it, no file can hold it.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            "the line holds half of a surrogate pair, which is no character", code="invalid_unicode"
        ) from error
    except json.JSONDecodeError as error:
        raise RequestError(f"the line is not JSON: {error!s:.120}", code="invalid_json") from error
    except RecursionError as error:
        raise RequestError("the line is nested too deeply", code="invalid_json") from error
    except ValueError as error:  # What JSON allows, but Python reads no further than 4300 digits.
        raise RequestError(
            "the line holds an integer of thousands of digits", code="invalid_json"
        ) from error
    if not isinstance(value, dict):
        raise RequestError("the line is JSON, but no object", code="not_an_object")
    return value


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: which of the two values is meant, nobody can say."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        ((repeated, _),) = counts.most_common(1)
        raise RequestError(f"the line has the key {repeated!r:.80} twice", code="invalid_json")
    return fields


def _request_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the request: those of `body` in an OpenAI batch line."""
    if "body" not in fields and "url" not in fields:
        return fields
    url, body = fields.get("url"), fields.get("body")
    if not isinstance(url, str) or url not in _URL_FIELDS:
        raise RequestError(
            f"`url` is {url!r:.80}, not one of {', '.join(_URL_FIELDS)}", code="unsupported_url"
        )
    if fields.get("method", "POST") != "POST":
        raise RequestError(f"`method` is {fields['method']!r:.80}, not POST", code="invalid_method")
    if not isinstance(body, dict):
        raise RequestError("`body` must be an object", code="invalid_body")
    if _URL_FIELDS[url] not in body:
        raise RequestError(f"`{url}` needs `body.{_URL_FIELDS[url]}`", code="missing_prompt")
    return body


def _prompt_of(
    request: Mapping[str, Any],
) -> tuple[str | None, list[Message] | None, list[int] | None]:
    given = [name for name in PROMPT_FIELDS if request.get(name) is not None]
    if len(given) != 1:
        names = ", ".join(f"`{name}`" for name in PROMPT_FIELDS)
        found = " and ".join(f"`{name}`" for name in given) or "none"
        code = "ambiguous_prompt" if given else "missing_prompt"
        raise RequestError(f"the line needs exactly one of {names}, has {found}", code=code)
    value = request[given[0]]
    if given[0] == "messages":
        return None, parse_messages(value), None
    if isinstance(value, str) and given[0] == "prompt":
        return value, None, None
    # OpenAI's completions take tokens under the name `prompt` too.
    return None, None, _parse_token_ids(given[0], value)


def _parse_token_ids(name: str, value: object) -> list[int]:
    if not isinstance(value, list) or not all(
        isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0
        for token_id in value
    ):
        allowed = "a string or a list" if name == "prompt" else "a list"
        raise RequestError(f"`{name}` must be {allowed} of token ids", code="invalid_prompt")
    if not value:
        raise RequestError(f"`{name}` holds no token", code="empty_prompt")
    return value


def _unknown_fields(fields: Mapping[str, Any], request: Mapping[str, Any]) -> tuple[str, ...]:
    known = {*SAMPLING_FIELDS, *OPENAI_FIELDS, *UNSUPPORTED_FIELDS, *PROMPT_FIELDS, *_SILENT_FIELDS}
    unknown = [name for name in request if name not in known]
    if request is not fields:
        unknown += [n for n in fields if n not in _ENVELOPE_FIELDS and n not in _SILENT_FIELDS]
    return tuple(unknown)
