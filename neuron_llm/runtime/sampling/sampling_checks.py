"""Checks of single sampling fields; errors name the value and the limit. Knows no torch."""

from __future__ import annotations

import sys
from collections.abc import ItemsView, Mapping
from typing import TypeGuard

from neuron_llm.errors import RequestError

MAX_INTEGER = 2**63 - 1
_MIN_BIAS, _MAX_BIAS = -100.0, 100.0


def check_number(
    name: str, value: object, *, minimum: float, maximum: float, excludes_minimum: bool = False
) -> None:
    """Refuse what is no number of `[minimum, maximum]`, or of `(minimum, maximum]`.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    is_number = _is_number(value) and minimum <= value <= maximum
    if not is_number or (excludes_minimum and value == minimum):
        interval = f"{'(' if excludes_minimum else '['}{minimum}, {maximum}]"
        raise invalid(name, value, f"a number in {interval}")


def check_positive(name: str, value: object) -> None:
    """Refuse what is no finite number over 0.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    if not (_is_number(value) and 0 < value <= sys.float_info.max):
        raise invalid(name, value, "a finite number > 0")


def check_integer(name: str, value: object, *, minimum: int, maximum: int | None = None) -> None:
    """Refuse what is no integer in its range; a range without `maximum` ends where int64 does.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    greatest = MAX_INTEGER if maximum is None else maximum
    if is_integer and minimum <= value <= greatest:  # type: ignore[operator]
        return
    is_too_large = is_integer and value > greatest  # type: ignore[operator]
    has_end = maximum is not None or is_too_large
    limits = f"from {minimum} to {greatest}" if has_end else f">= {minimum}"
    raise invalid(name, value, f"an integer {limits}")


def check_switch(name: str, value: object) -> None:
    """Refuse what is neither True nor False.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    if not isinstance(value, bool):
        raise invalid(name, value, "true or false")


def parse_num_logprobs(name: str, value: object) -> int | None:
    """Return how many log probabilities are asked for; True is 1 as in vLLM, False is none.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    if value is None or value is False:
        return None
    if value is True:
        return 1
    check_integer(name, value, minimum=-1)
    assert isinstance(value, int)
    return value


def parse_strings(name: str, value: object, *, may_be_one: bool) -> tuple[str, ...]:
    """Return the different strings of a list, in order.

    Args:
        name: of the field.
        value: None is an empty list.
        may_be_one: a string alone is a list of one.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    strings = (value,) if may_be_one and isinstance(value, str) else () if value is None else value
    if not isinstance(strings, list | tuple) or not all(
        isinstance(string, str) and string for string in strings
    ):
        allowed = "a string or a list of strings" if may_be_one else "a list of strings"
        raise invalid(name, value, f"{allowed}, none of them empty")
    return tuple(dict.fromkeys(strings))


def parse_token_ids(name: str, value: object) -> tuple[int, ...]:
    """Return the different token ids of a list, in order; None is an empty list.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    ids = () if value is None else value
    if not isinstance(ids, list | tuple) or not all(_is_token_id(token_id) for token_id in ids):
        raise invalid(name, value, "a list of integers >= 0")
    return tuple(dict.fromkeys(ids))


def parse_allowed_token_ids(value: object) -> tuple[int, ...] | None:
    """Return the different token ids of a list that is not empty; None allows every token.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    token_ids = parse_token_ids("allowed_token_ids", value)
    if value is not None and not token_ids:
        raise invalid("allowed_token_ids", value, "a list of at least one token id")
    return None if value is None else token_ids


def parse_logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    """Return (token id, bias) of every entry, by token id, biases clamped to [-100, 100].

    Args:
        value: a mapping, whose keys may be the decimal digits of a token id since JSON has no
            other keys, or what this function has returned; None is empty.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    pairs = value.items() if isinstance(value, Mapping) else () if value is None else value
    try:
        if not isinstance(pairs, tuple | ItemsView):
            raise TypeError("it is neither a mapping nor the pairs of one")
        biases = {_token_id_of(key): _bias_of(bias) for key, bias in pairs}
    except (TypeError, ValueError) as error:
        allowed = 'an object of token ids and numbers, such as `{"5": -100}`'
        raise invalid("logit_bias", value, allowed) from error
    return tuple(sorted(biases.items()))


def invalid(name: str, value: object, allowed: str) -> RequestError:
    """Return the error for a field that has a value which is not `allowed`."""
    try:
        shown = f"{value!r:.80}"
    except ValueError:  # Python writes no integer of more than 4300 digits.
        shown = "a number of thousands of digits"
    return RequestError(f"`{name}` is {shown}, not {allowed}", code="invalid_sampling")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_token_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER


def _token_id_of(key: object) -> int:
    token_id = int(key) if isinstance(key, str) and key.isascii() and key.isdecimal() else key
    if _is_token_id(token_id):
        return token_id
    raise ValueError(f"{key!r} is no token id")


def _bias_of(bias: object) -> float:
    if not _is_number(bias) or bias != bias:  # NaN, which no integer of any size is.
        raise ValueError(f"{bias!r} is no number")
    return float(min(_MAX_BIAS, max(_MIN_BIAS, bias)))
