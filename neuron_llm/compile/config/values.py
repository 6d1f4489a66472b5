"""From the values of a file to a `Config`: types, unknown keys, and what can be kept."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from neuron_llm.compile.config.config import Config, NeuronConfig, OnDeviceSamplingConfig
from neuron_llm.compile.config.fault import Fault, shown

_EXPLAINED_KEYS = {
    "trust_remote_code": "no such key: code that comes with a model is never run, only what the"
    " installed transformers contains; remove it",
}
_LEVELS: dict[str, type[BaseModel]] = {
    "": Config,
    "neuron_config.": NeuronConfig,
    "neuron_config.on_device_sampling_config.": OnDeviceSamplingConfig,
}


@dataclass(frozen=True)
class CheckedValues:
    """A file's values after every one of them was looked at by itself.

    Attributes:
        config: the values that satisfy their type; defaults stand in for the others.
        faults: one for every value of a wrong type, unknown key and missing key.
        wrong_keys: dotted paths of the keys whose default stands in.
    """

    config: Config
    faults: list[Fault]
    wrong_keys: frozenset[str]


def check_values(values: Mapping[str, Any]) -> CheckedValues:
    """Return what a file says, as far as each value is of the right type."""
    try:
        return CheckedValues(Config.model_validate(values), [], frozenset())
    except ValidationError as error:
        details = _without_repetitions(error.errors(include_url=False))
    faults = [_fault(detail, values) for detail in details]
    kept = _without([_key_path(detail["loc"]) for detail in details], values)
    wrong_keys = frozenset(".".join(_key_path(detail["loc"])) for detail in details)
    # A missing model is reported; a config without one could not be checked any further.
    config = Config.model_validate({"model": "missing", **kept})
    return CheckedValues(config, faults, wrong_keys)


def _without_repetitions(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out the list that is too short because none of its items was kept."""
    lists = {detail["loc"][:-1] for detail in details if isinstance(detail["loc"][-1], int)}
    return [detail for detail in details if detail["loc"] not in lists]


def _key_path(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """The names of a location, without the indices of list items."""
    return tuple(part for part in loc if isinstance(part, str))


def _without(paths: list[tuple[str, ...]], values: Mapping[str, Any]) -> dict[str, Any]:
    heads = {path[0] for path in paths if len(path) == 1}
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if key in heads:
            continue
        below = [path[1:] for path in paths if path[0] == key]
        kept[key] = _without(below, value) if below else value
    return kept


def _fault(detail: ErrorDetails, values: Mapping[str, Any]) -> Fault:
    path = _key_path(detail["loc"])
    key = ".".join(path)
    if detail["type"] == "extra_forbidden":
        return Fault(key, _unknown_key(path))
    field = _field(path)
    example = field.examples[0] if field.examples else None
    if detail["type"] == "missing":
        return Fault(key, f"missing; write for example `{key}: {shown(example)}`")
    indices = [part for part in detail["loc"] if isinstance(part, int)]
    value: object = detail["input"]
    rule = field.description or ""
    if indices:
        rule = rule.replace("a list of whole numbers", "a whole number").replace(
            "a list of texts, one for each argument", "text"
        )
    name = f"{key}[{indices[0]}]" if indices else key
    way_out = _way_out(field, path, value, is_item=bool(indices))
    return Fault(name, f"{shown(value)} must be {rule}; {way_out}")


def _way_out(field: FieldInfo, path: tuple[str, ...], value: object, *, is_item: bool) -> str:
    if value is None and not is_item and not field.is_required():
        return "give a value, or remove the line for the default"
    if isinstance(value, str):
        close = difflib.get_close_matches(value, _choices(field.annotation), n=1)
        if close:
            return f"did you mean `{close[0]}`?"
        is_number = value.isdecimal() and len(value) < 20
        if is_number and _is_accepted(path, int(value), is_item=is_item):
            return "write it without quotes"
    if isinstance(value, int | float) and field.description == "text":
        return "put it in quotes"
    whole = int(value) if isinstance(value, float) and value.is_integer() else None
    if whole is not None and _is_accepted(path, whole, is_item=is_item):
        return f"write `{whole}`"
    example = field.examples[0] if field.examples else None
    return f"write for example `{path[-1]}: {shown(example)}`"


def _is_accepted(path: tuple[str, ...], value: object, *, is_item: bool) -> bool:
    """Whether advice to write a value would not lead to the next fault."""
    nested: Any = [value] if is_item else value
    for name in reversed(path):
        nested = {name: nested}
    try:
        Config.model_validate({"model": "any", **nested})
    except ValidationError:
        return False
    return True


def _choices(annotation: object) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]


def _field(path: tuple[str, ...]) -> FieldInfo:
    level = "".join(f"{name}." for name in path[:-1])
    return _LEVELS[level].model_fields[path[-1]]


def _unknown_key(path: tuple[str, ...]) -> str:
    name = path[-1]
    if name in _EXPLAINED_KEYS:
        return _EXPLAINED_KEYS[name]
    level = "".join(f"{part}." for part in path[:-1])
    known = list(_LEVELS[level].model_fields)
    elsewhere = list(_other_places(name, level))
    if elsewhere:
        return f"no such key here; did you mean `{elsewhere[0]}`?"
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"no such key; did you mean `{level}{close[0]}`?"
    return f"no such key; the keys are {', '.join(f'`{key}`' for key in known)}"


def _other_places(name: str, level: str) -> Iterator[str]:
    for prefix, model in _LEVELS.items():
        if prefix != level and name in model.model_fields:
            yield f"{prefix}{name}"
