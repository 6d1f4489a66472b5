"""Sampling parameters of one request: vLLM's names, defaults and limits. Knows no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.sampling_checks import (
    check_integer,
    check_number,
    check_positive,
    check_switch,
    parse_allowed_token_ids,
    parse_logit_bias,
    parse_num_logprobs,
    parse_strings,
    parse_token_ids,
)
from neuron_llm.runtime.sampling.unsupported_fields import (
    UNSUPPORTED_FIELDS,
    refuse_unsupported_fields,
)

MAX_N = 16384
"""The most completions of one prompt, as in vLLM."""

_MIN_SEED, _MAX_SEED = -(2**63), 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen and when they end.

    Each step the model's logits are changed in this order: `allowed_token_ids`, `bad_words`,
    `min_tokens`, `logit_bias`, `repetition_penalty`, `frequency_penalty`, `presence_penalty`. Of
    the result a greedy request takes the largest; another divides it by `temperature`, keeps what
    `min_p`, `top_k` and then `top_p` leave, and draws.

    Attributes:
        n: completions of the prompt; with a `seed`, completion i draws with `seed` + i.
        best_of: what old clients send; `n` or None.
        temperature: in [0, 2]; 0 is greedy.
        top_p: in (0, 1]; keeps the fewest most likely tokens whose probabilities reach it.
        top_k: keeps the `top_k` most likely tokens; 0 or -1 keeps all.
        min_p: in [0, 1]; keeps tokens at least `min_p` times as likely as the most likely one.
        seed: makes the draws repeatable, whatever else is in the batch; None or -1 draws anew.
        repetition_penalty: over 0; positive logits of tokens in the prompt or the output are
            divided by it, negative ones multiplied.
        presence_penalty: in [-2, 2]; taken off the logits of tokens in the output.
        frequency_penalty: in [-2, 2]; taken off them once for each time they occur there.
        logit_bias: token id to what is added to its logit, clamped to [-100, 100]; the pairs once
            built.
        allowed_token_ids: the only tokens that may be chosen; None allows every one.
        bad_words: strings whose last token is not chosen behind their others.
        stop: strings that end the output: one string or several; a tuple once built.
        stop_token_ids: tokens that end the output besides the model's end-of-sequence tokens.
        ignore_eos: the model's end-of-sequence tokens do not end the output.
        max_tokens: the most tokens to produce, at least 1; None is what `max_model_len` leaves.
        min_tokens: no end-of-sequence, stop token or stop string before so many tokens.
        logprobs: so many of the most likely tokens are returned with each output token, and the
            token itself; 0 only itself, -1 all.
        prompt_logprobs: the same for the tokens of the prompt, the first one excepted.
        include_stop_str_in_output: leave the stop string or stop token in the text.
        skip_special_tokens: leave special tokens out of the text.

    Raises:
        RequestError: a value is of the wrong type or out of range (code `invalid_sampling`), or
            `best_of` is not `n` (code `unsupported_field`).
    """

    n: int = 1
    best_of: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = ()
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] = ()
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        """Check every field and bring those of several forms into one."""
        self._check_choosing()
        self._check_lengths()
        for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"):
            check_switch(name, getattr(self, name))
        for name, value in (
            ("seed", None if self.seed == -1 else self.seed),
            ("logit_bias", parse_logit_bias(self.logit_bias)),
            ("allowed_token_ids", parse_allowed_token_ids(self.allowed_token_ids)),
            ("bad_words", parse_strings("bad_words", self.bad_words, may_be_one=False)),
            ("stop", parse_strings("stop", self.stop, may_be_one=True)),
            ("stop_token_ids", parse_token_ids("stop_token_ids", self.stop_token_ids)),
            ("logprobs", parse_num_logprobs("logprobs", self.logprobs)),
            ("prompt_logprobs", parse_num_logprobs("prompt_logprobs", self.prompt_logprobs)),
        ):
            object.__setattr__(self, name, value)
        self._check_several()

    def _check_choosing(self) -> None:
        check_number("temperature", self.temperature, minimum=0, maximum=2)
        check_number("top_p", self.top_p, minimum=0, maximum=1, excludes_minimum=True)
        check_integer("top_k", self.top_k, minimum=-1)
        check_number("min_p", self.min_p, minimum=0, maximum=1)
        check_positive("repetition_penalty", self.repetition_penalty)
        check_number("presence_penalty", self.presence_penalty, minimum=-2, maximum=2)
        check_number("frequency_penalty", self.frequency_penalty, minimum=-2, maximum=2)
        if self.seed is not None:
            check_integer("seed", self.seed, minimum=_MIN_SEED, maximum=_MAX_SEED)

    def _check_lengths(self) -> None:
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, minimum=1)
        check_integer("min_tokens", self.min_tokens, minimum=0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"`min_tokens` is {self.min_tokens}, more than `max_tokens`, {self.max_tokens}",
                code="invalid_sampling",
                hint="raise `max_tokens` or lower `min_tokens`",
            )

    def _check_several(self) -> None:
        check_integer("n", self.n, minimum=1, maximum=MAX_N)
        if self.n > 1 and self.temperature == 0:
            raise RequestError(
                f"`n` is {self.n}, but with `temperature` 0 every completion is the same",
                code="invalid_sampling",
                hint="raise `temperature`, or leave out `n`",
            )
        if self.best_of is not None:
            check_integer("best_of", self.best_of, minimum=1, maximum=MAX_N)
            if self.best_of != self.n:
                raise RequestError(
                    f"`best_of` is {self.best_of}, not `n`, {self.n}: choosing among more"
                    " completions than are returned is not supported",
                    code="unsupported_field",
                    hint="remove `best_of` from the request",
                )
            object.__setattr__(self, "best_of", None)

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

_GENERATION_CONFIG_FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def generation_config_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model's `generation_config.json` says, a layer for `SamplingParams.merged`.

    These are the keys that vLLM takes from this file; `max_new_tokens` is `max_tokens`. `do_sample`
    is not among them, so a model is sampled unless its temperature is 0.
    """
    fields = {name: config.get(name) for name in _GENERATION_CONFIG_FIELDS}
    fields["max_tokens"] = config.get("max_new_tokens")
    return {name: value for name, value in fields.items() if value is not None}


def _unknown_field(name: str) -> RequestError:
    close = get_close_matches(name, SAMPLING_FIELDS, n=1)
    hint = f"did you mean `{close[0]}`" if close else f"known: {', '.join(sorted(SAMPLING_FIELDS))}"
    return RequestError(f"`{name}` is not a sampling field", code="invalid_sampling", hint=hint)
