"""What a library user gives, checked where it comes in: paths, counts, choices. Knows no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuron_llm.errors import NeuronLLMError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def as_path(value: object, name: str) -> Path:
    """Return a path that may be given as a text.

    Args:
        value: what was given.
        name: of the argument.

    Raises:
        NeuronLLMError: it is neither.
    """
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise _of_wrong_type(value, name, "a path")


def make_paths(given: DataclassInstance) -> None:
    """Make paths of the fields of a frozen dataclass that are to be some, and may be texts.

    Raises:
        NeuronLLMError: one is neither.
    """
    for field in fields(given):
        value = getattr(given, field.name)
        if field.type == "Path" or (field.type == "Path | None" and value is not None):
            object.__setattr__(given, field.name, as_path(value, field.name))


def check_counts(given: object, *names: str) -> None:
    """Refuse attributes that are to be None or at least 1, and are not.

    Raises:
        NeuronLLMError: names the first.
    """
    for name in names:
        value = getattr(given, name)
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if value is not None and not is_count:
            raise NeuronLLMError(f"`{name}` is {value!r}, not an integer >= 1")


def check_choice(value: object, name: str, choices: Iterable[str]) -> None:
    """Refuse what is none of the choices.

    Raises:
        NeuronLLMError: names them.
    """
    known = list(choices)
    if value not in known:
        listed = ", ".join(f"`{choice}`" for choice in known)
        raise NeuronLLMError(f"`{name}` is {value!r}, not one of {listed}")


def check_type(value: object, name: str, kind: type[Any], shown: str | None = None) -> None:
    """Refuse what is of another type, such as a dictionary in place of the options.

    Raises:
        NeuronLLMError: names the type, or what is `shown` for it.
    """
    if not isinstance(value, kind):
        raise _of_wrong_type(value, name, shown or f"`{kind.__name__}`")


def _of_wrong_type(value: object, name: str, expected: str) -> NeuronLLMError:
    return NeuronLLMError(f"`{name}` is of type `{type(value).__name__}`, not {expected}")
