"""The values in a row of a trace: counts, times and hash ids, from text or JSON. Knows no torch."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

MAX_TOKENS = 2**31 - 1
"""The most that the graphs' index tensors, which are int32, can count."""

MAX_SECONDS = 1e11
"""Later than the year 5000: a larger number counts no seconds."""


class RowError(ValueError):
    """A row that cannot be read; the text says why."""


def parse_count(name: str, value: object, *, minimum: int) -> int:
    """Return a number of tokens.

    A float that is whole is taken, since spreadsheets write those: `374.0` is 374.

    Raises:
        RowError: it is no whole number from `minimum` to `MAX_TOKENS`.
    """
    number = _parse_number(name, value)
    if not math.isfinite(number) or number != int(number):
        raise RowError(f"`{name}` is `{shown(value)}`, not a whole number")
    if not minimum <= number <= MAX_TOKENS:
        limit = f"the least is {minimum}" if number < minimum else f"the most is {MAX_TOKENS}"
        raise RowError(f"`{name}` is {shown(value)}, {limit}")
    return int(number)


def parse_seconds(name: str, value: object) -> float:
    """Return a time in seconds from any beginning.

    Raises:
        RowError: it is no number from 0 to `MAX_SECONDS`.
    """
    return _checked_seconds(name, value, float(_parse_number(name, value)))


def parse_milliseconds(name: str, value: object) -> float:
    """Return a time given in milliseconds, in seconds.

    Raises:
        RowError: it is no number, or not from 0 to `MAX_SECONDS` seconds.
    """
    return _checked_seconds(name, value, float(_parse_number(name, value)) / 1e3)


def parse_datetime(name: str, value: object) -> float:
    """Return a date and time as seconds since 1970; without a time zone it is UTC.

    Digits behind the microseconds are cut off.

    Raises:
        RowError: it is not of the form `2023-11-16 18:15:46.6805900`.
    """
    if not isinstance(value, str):
        raise RowError(f"`{name}` is `{shown(value)}`, not a date and time")
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise RowError(f"`{name}` is `{shown(value)}`, not a date and time") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def parse_hash_ids(
    name: str, value: object, *, prompt_tokens: int, block_size: int
) -> tuple[int, ...]:
    """Return the ids of a prompt's blocks, from a list or, in a CSV cell, a list's JSON.

    The last block may be left out where it is not full.

    Raises:
        RowError: it is no list of integers, or not of as many as the prompt has blocks.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise RowError(f"`{name}` is `{shown(value)}`, not a list") from error
    # Not `isinstance`: `true` is an integer to Python.
    if not isinstance(value, list) or not all(type(hash_id) is int for hash_id in value):
        raise RowError(f"`{name}` is `{shown(value)}`, not a list of integers")
    num_full, num_rest = divmod(prompt_tokens, block_size)
    if len(value) not in (num_full, num_full + (num_rest > 0)):
        raise RowError(
            f"`{name}` has {len(value)} ids, but {prompt_tokens} tokens are"
            f" {num_full + (num_rest > 0)} blocks of {block_size}"
        )
    return tuple(value)


def shown(value: object) -> str:
    """Return a value for a message: short, and printable whatever it is."""
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in f"{text:.40}")


def _parse_number(name: str, value: object) -> float:
    if value is None or value == "":
        raise RowError(f"`{name}` is missing")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RowError(f"`{name}` is `{shown(value)}`, not a number")
    try:
        # Python reads `1_000` as a number; nobody writes one so.
        return float(value.replace("_", " ") if isinstance(value, str) else value)
    except (ValueError, OverflowError) as error:
        raise RowError(f"`{name}` is `{shown(value)}`, not a number") from error


def _checked_seconds(name: str, value: object, seconds: float) -> float:
    if not 0 <= seconds <= MAX_SECONDS:  # False for NaN too.
        raise RowError(f"`{name}` is `{shown(value)}`, not from 0 to {MAX_SECONDS:.0e} seconds")
    return seconds
