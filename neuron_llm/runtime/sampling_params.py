"""Sampling parameters of one request: vLLM's names, defaults and limits. Knows no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.runtime.unsupported_fields import (
    UNSUPPORTED_FIELDS,
    is_neutral,
    refuse_unsupported_fields,
)

_MIN_SEED, _MAX_SEED = -(2**63), 2**63 - 1
_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen and when they end.

    Attributes:
        temperature: in [0, 2]; 0 is greedy.
        top_p: in (0, 1]; keeps the fewest most likely tokens whose probabilities reach it.
        top_k: keeps the `top_k` most likely tokens; 0 or -1 keeps all.
        seed: makes the draws repeatable, whatever else is in the batch; None or -1 draws anew.
        stop: strings that end the output: one string or several; a tuple once built.
        stop_token_ids: tokens that end the output besides the model's end-of-sequence tokens.
        ignore_eos: the model's end-of-sequence tokens do not end the output.
        max_tokens: the most tokens to produce, at least 1; None is what `max_model_len` leaves.
        min_tokens: no end-of-sequence, stop token or stop string before so many tokens.
        include_stop_str_in_output: leave the stop string or stop token in the text.
        skip_special_tokens: leave special tokens out of the text.

    Raises:
        RequestError: a value is of the wrong type or out of range (code `invalid_sampling`).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        """Check every field and bring `seed` and the sequences into one form."""
        if not (_is_number(self.temperature) and 0 <= self.temperature <= 2):
            raise _invalid("temperature", self.temperature, "a number in [0, 2]")
        if not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise _invalid("top_p", self.top_p, "a number in (0, 1]")
        _check_integer("top_k", self.top_k, minimum=-1)
        if self.seed is not None:
            _check_integer("seed", self.seed, minimum=_MIN_SEED, maximum=_MAX_SEED)
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, minimum=1)
        _check_integer("min_tokens", self.min_tokens, minimum=0)
        for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise _invalid(name, getattr(self, name), "true or false")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"`min_tokens` is {self.min_tokens}, more than `max_tokens`, {self.max_tokens}",
                code="invalid_sampling",
                hint="raise `max_tokens` or lower `min_tokens`",
            )
        object.__setattr__(self, "seed", None if self.seed == -1 else self.seed)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _stop_token_ids(self.stop_token_ids))

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken, so that nothing is drawn."""
        return self.temperature == 0 or self.top_k == 1

    @classmethod
    def merged(cls, *layers: Mapping[str, Any]) -> SamplingParams:
        """Build from layers of fields, the strongest first, over vLLM's defaults.

        `merged({"top_k": 5}, {"top_k": 9, "seed": 1})` has `top_k` 5 and `seed` 1. A null leaves
        the field to the next layer, save for `max_tokens`, where it means the remaining context.

        Raises:
            RequestError: a field is unknown or invalid (code `invalid_sampling`), or is not
                supported in this version (code `unsupported_field`).
        """
        fields: dict[str, Any] = {}
        for layer in reversed(layers):
            refuse_unsupported_fields(layer)
            for name, value in layer.items():
                if name not in SAMPLING_FIELDS and name not in UNSUPPORTED_FIELDS:
                    raise _unknown_field(name)
                if name in SAMPLING_FIELDS and (value is not None or name == "max_tokens"):
                    fields[name] = value
        return cls(**fields)


SAMPLING_FIELDS = frozenset(field.name for field in dataclasses.fields(SamplingParams))
"""The names that `SamplingParams` takes."""


@dataclass(frozen=True)
class GenerationDefaults:
    """What a model's `generation_config.json` says about sampling.

    Attributes:
        fields: a layer for `SamplingParams.merged`.
        not_followed: fields that ask for something this version does not implement.
    """

    fields: dict[str, Any]
    not_followed: dict[str, Any]

    @classmethod
    def from_generation_config(cls, config: Mapping[str, Any]) -> GenerationDefaults:
        """Translate the keys that vLLM takes from this file: `max_new_tokens` is `max_tokens`.

        `do_sample` is not among them, so a model is sampled unless its temperature is 0.
        """
        fields = {name: config.get(name) for name in ("temperature", "top_k", "top_p")}
        fields["max_tokens"] = config.get("max_new_tokens")
        others = {name: config.get(name) for name in ("repetition_penalty", "min_p")}
        return cls(
            fields={name: value for name, value in fields.items() if value is not None},
            not_followed={n: value for n, value in others.items() if not is_neutral(n, value)},
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_integer(name: str, value: object, *, minimum: int, maximum: int | None = None) -> None:
    """Refuse what is no integer in its range; a range without `maximum` ends where int64 does."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    greatest = _MAX_INTEGER if maximum is None else maximum
    if is_integer and minimum <= value <= greatest:  # type: ignore[operator]
        return
    is_too_large = is_integer and value > greatest  # type: ignore[operator]
    has_end = maximum is not None or is_too_large
    limits = f"from {minimum} to {greatest}" if has_end else f">= {minimum}"
    raise _invalid(name, value, f"an integer {limits}")


def _stop_strings(stop: object) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else () if stop is None else stop
    if not isinstance(strings, list | tuple) or not all(
        isinstance(string, str) and string for string in strings
    ):
        raise _invalid("stop", stop, "a string or a list of strings, none of them empty")
    return tuple(dict.fromkeys(strings))


def _stop_token_ids(token_ids: object) -> tuple[int, ...]:
    ids = () if token_ids is None else token_ids
    if not isinstance(ids, list | tuple) or not all(
        isinstance(token_id, int) and not isinstance(token_id, bool) and token_id >= 0
        for token_id in ids
    ):
        raise _invalid("stop_token_ids", token_ids, "a list of integers >= 0")
    return tuple(dict.fromkeys(ids))


def _invalid(name: str, value: object, allowed: str) -> RequestError:
    try:
        shown = f"{value!r:.80}"
    except ValueError:  # Python writes no integer of more than 4300 digits.
        shown = "a number of thousands of digits"
    return RequestError(f"`{name}` is {shown}, not {allowed}", code="invalid_sampling")


def _unknown_field(name: str) -> RequestError:
    close = get_close_matches(name, SAMPLING_FIELDS, n=1)
    hint = f"did you mean `{close[0]}`" if close else f"known: {', '.join(sorted(SAMPLING_FIELDS))}"
    return RequestError(f"`{name}` is not a sampling field", code="invalid_sampling", hint=hint)
