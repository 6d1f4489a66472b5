"""The forms in which a program gives prompts: texts, token ids, vLLM's dictionaries, and many."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, TypedDict

from neuron_llm.errors import RequestError


class TextPrompt(TypedDict):
    """A text, as vLLM takes it."""

    prompt: str


class TokensPrompt(TypedDict):
    """Token ids, as vLLM takes them."""

    prompt_token_ids: Sequence[SupportsIndex]


Prompt = str | Sequence[SupportsIndex] | TextPrompt | TokensPrompt
"""One prompt; an array of integers will do for a list of token ids."""

Prompts = Prompt | Iterable[Prompt]

_MAX_TOKEN_ID = 2**63 - 1
_FIELDS = ("prompt", "prompt_token_ids")
_NO_SEQUENCES = (bytes, bytearray, memoryview, set, frozenset)


def parse_prompts(value: object) -> list[str | list[int]]:
    """Return each prompt as its text or its token ids; a single one is a list of one.

    Raises:
        RequestError: there is something else among them (code `invalid_prompt`); the message says
            where.
    """
    if isinstance(value, str | Mapping):
        return [_parse_prompt(value, "prompt")]
    items = _items_of(value)
    if items is None:
        raise _invalid("prompts", value)
    token_ids = _token_ids(items)
    if token_ids:
        return [token_ids]
    return [_parse_prompt(item, f"prompts[{index}]") for index, item in enumerate(items)]


def _parse_prompt(value: object, name: str) -> str | list[int]:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _parse_mapping(value, name)
    token_ids = _token_ids(_items_of(value))
    if token_ids is None:
        raise _invalid(name, value)
    return token_ids


def _parse_mapping(value: Mapping[Any, Any], name: str) -> str | list[int]:
    given = [key for key, content in value.items() if content is not None]
    if len(given) != 1 or given[0] not in _FIELDS:
        raise RequestError(
            f"`{name}` has the keys {given!r:.80}, not one of `prompt` and `prompt_token_ids`",
            code="invalid_prompt",
        )
    content = value[given[0]]
    if isinstance(content, str) and given[0] == "prompt":
        return content
    token_ids = None if given[0] == "prompt" else _token_ids(_items_of(content))
    if token_ids is None:
        raise _invalid(f"{name}[{given[0]!r}]", content)
    return token_ids


def _items_of(value: object) -> list[Any] | None:
    """Return what a list, an array or a generator yields; None for what has no order or items."""
    if isinstance(value, (str, Mapping, *_NO_SEQUENCES)) or not isinstance(value, Iterable):
        return None
    try:
        iterator = iter(value)
    except TypeError:  # An array without dimensions says only here that it has no items.
        return None
    return list(iterator)


def _token_ids(items: list[Any] | None) -> list[int] | None:
    """Return items as integers, NumPy's and torch's included; None if one is no integer."""
    if items is None or not all(_is_integer(item) for item in items):
        return None
    return [operator.index(item) for item in items]


def _is_integer(value: object) -> bool:
    # An array of one item passes for an integer too, and in torch even one of a truth value.
    is_array = getattr(value, "ndim", 0) != 0
    is_truth = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")
    if is_array or is_truth or not isinstance(value, SupportsIndex):
        return False
    try:
        return abs(operator.index(value)) <= _MAX_TOKEN_ID
    except TypeError:
        return False


def _invalid(name: str, value: object) -> RequestError:
    return RequestError(
        f"`{name}` is of type `{type(value).__name__}`, not a text or a list of token ids",
        code="invalid_prompt",
        hint='for example `"Hello"`, `[1, 2, 3]`, `{"prompt": "Hello"}` or a list of such',
    )
