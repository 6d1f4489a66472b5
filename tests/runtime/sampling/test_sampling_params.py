from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.sampling_params import (
    SAMPLING_FIELDS,
    SamplingParams,
    generation_config_fields,
)
from neuron_llm.runtime.sampling.unsupported_fields import UNSUPPORTED_FIELDS


def test_the_defaults_are_those_of_vllm() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (1.0, 1.0, 0, None)
    assert (params.max_tokens, params.min_tokens) == (16, 0)
    assert (params.stop, params.stop_token_ids, params.ignore_eos) == ((), (), False)
    assert (params.include_stop_str_in_output, params.skip_special_tokens) == (False, True)
    assert (params.n, params.best_of, params.min_p, params.repetition_penalty) == (1, None, 0, 1)
    assert (params.presence_penalty, params.frequency_penalty) == (0, 0)
    assert (params.logprobs, params.prompt_logprobs) == (None, None)
    assert (params.logit_bias, params.bad_words, params.allowed_token_ids) == ((), (), None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_tokens", value) for value in (0, -1, 1.5, 5.0, "5", True, math.nan, [5])),
        *(("min_tokens", value) for value in (-1, 0.5, "0", False, None)),
        *(("temperature", value) for value in (-0.1, 2.1, math.nan, math.inf, "1", True, None)),
        *(("temperature", value) for value in (10**400, -(10**400))),
        *(("top_p", value) for value in (0, 0.0, 1.1, -1, math.nan, "0.5", True)),
        *(("top_k", value) for value in (-2, 1.5, "3", True, None)),
        *(("seed", value) for value in (2**63, -(2**63) - 1, 1.0, "1", True)),
        *(("stop", value) for value in ("", ["a", ""], [1], 5, {"a": 1}, [["a"]])),
        *(("stop_token_ids", value) for value in ([-1], [1.0], ["1"], [True], 5, "12")),
        *(("ignore_eos", value) for value in (1, "true", None)),
        *(("n", value) for value in (0, -1, 16385, 1.0, "2", True, None)),
        *(("best_of", value) for value in (0, "1", True)),
        *(("min_p", value) for value in (-0.1, 1.1, math.nan, "0", True, None)),
        *(("repetition_penalty", value) for value in (0, -1, math.nan, math.inf, 10**400, "1")),
        *(("presence_penalty", value) for value in (-2.1, 2.1, math.nan, True, None)),
        *(("frequency_penalty", value) for value in (-2.1, 2.1, math.inf, "1")),
        *(("logprobs", value) for value in (-2, 1.0, "5", 2**63)),
        *(("prompt_logprobs", value) for value in (-2, 0.5, [1])),
        *(("logit_bias", value) for value in ([1], "a", 5, {"a": 1}, {-1: 1}, {1.5: 1})),
        *(("logit_bias", value) for value in ({5: "1"}, {5: math.nan}, {5: None}, {"²": 1})),
        *(("logit_bias", value) for value in ({True: 1}, (1, 2), ((1, 2, 3),), {"9" * 5000: 1})),
        *(("allowed_token_ids", value) for value in ([], (), [-1], [1.0], "12", 5, [10**5000])),
        *(("bad_words", value) for value in ("a", [""], [1], 5, {"a": 1})),
        ("include_stop_str_in_output", 0),
        ("skip_special_tokens", "no"),
    ],
)
def test_a_value_out_of_range_or_of_the_wrong_type_is_refused_by_name(
    field: str, value: object
) -> None:
    with pytest.raises(RequestError) as raised:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert raised.value.code == "invalid_sampling"
    assert raised.value.message.startswith(f"`{field}` is ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 1),
        ("max_tokens", None),
        ("temperature", 0),
        ("temperature", 2),
        ("top_p", 1),
        ("top_p", 1e-9),
        ("top_k", -1),
        ("top_k", 10**9),
        ("seed", 2**63 - 1),
        ("seed", -(2**63)),
        ("n", 16384),
        ("min_p", 1),
        ("min_p", 0),
        ("repetition_penalty", 1e-9),
        ("presence_penalty", -2),
        ("frequency_penalty", 2),
        ("logprobs", -1),
        ("logprobs", 0),
        ("prompt_logprobs", -1),
    ],
)
def test_the_limits_themselves_are_allowed(field: str, value: object) -> None:
    assert getattr(SamplingParams(**{field: value}), field) == value  # type: ignore[arg-type]


def test_min_tokens_above_max_tokens_is_refused_with_both_values() -> None:
    with pytest.raises(RequestError, match="`min_tokens` is 5, more than `max_tokens`, 4"):
        SamplingParams(min_tokens=5, max_tokens=4)
    assert SamplingParams(min_tokens=5, max_tokens=5).min_tokens == 5
    assert SamplingParams(min_tokens=500, max_tokens=None).min_tokens == 500


def test_stop_becomes_a_tuple_of_different_strings() -> None:
    assert SamplingParams(stop="END").stop == ("END",)
    assert SamplingParams(stop=["b", "a", "b"]).stop == ("b", "a")
    assert SamplingParams(stop_token_ids=[7, 5, 7]).stop_token_ids == (7, 5)


def test_a_seed_of_minus_one_is_no_seed() -> None:
    assert SamplingParams(seed=-1).seed is None
    assert SamplingParams(seed=0).seed == 0


def test_temperature_zero_and_top_k_one_are_greedy() -> None:
    assert SamplingParams(temperature=0).is_greedy
    assert SamplingParams(temperature=2, top_k=1).is_greedy
    assert not SamplingParams(temperature=0.001).is_greedy
    assert not SamplingParams(top_k=2).is_greedy


def test_equal_parameters_are_equal_and_hash_alike() -> None:
    assert hash(SamplingParams(stop=["a"])) == hash(SamplingParams(stop="a"))
    first, second = (
        SamplingParams(logit_bias=dict(b)) for b in ([(1, 2), (3, 4)], [(3, 4), (1, 2)])
    )
    assert first == second and hash(first) == hash(second)


def test_the_strongest_layer_that_names_a_field_decides_it() -> None:
    line = {"top_k": 5, "temperature": None}
    flags = {"top_k": 9, "temperature": 0.5, "seed": 3}
    model = {"top_p": 0.9, "seed": 4}
    params = SamplingParams.merged(line, flags, model)
    assert params == SamplingParams(top_k=5, temperature=0.5, seed=3, top_p=0.9)


def test_null_max_tokens_means_the_remaining_context_and_overrides_weaker_layers() -> None:
    assert SamplingParams.merged({"max_tokens": None}, {"max_tokens": 7}).max_tokens is None
    assert SamplingParams.merged({}, {"max_tokens": 7}).max_tokens == 7
    assert SamplingParams.merged().max_tokens == 16


def test_limits_are_checked_across_layers() -> None:
    with pytest.raises(RequestError, match="`min_tokens` is 8"):
        SamplingParams.merged({"max_tokens": 4}, {"min_tokens": 8})
    assert SamplingParams.merged({"min_tokens": 20}, {"max_tokens": 30}).min_tokens == 20


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("echo", True),
        ("logprob_token_ids", [1]),
        ("length_penalty", True),
        ("response_format", {"type": "json_object"}),
        ("tools", [{"type": "function"}]),
        ("stream", True),
        ("structured_outputs", {"regex": "a"}),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(RequestError) as raised:
        SamplingParams.merged({field: value})
    assert raised.value.code == "unsupported_field"
    assert f"`{field}` is not supported" in raised.value.message
    assert raised.value.hint == f"remove `{field}` from the request"


@pytest.mark.parametrize("field", sorted(UNSUPPORTED_FIELDS))
def test_an_unsupported_field_may_ask_for_nothing(field: str) -> None:
    neutral: list[Any] = [None, *UNSUPPORTED_FIELDS[field]]
    for value in neutral:
        assert SamplingParams.merged({field: value}) == SamplingParams()


def test_an_unknown_field_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RequestError, match="`temprature` is not a sampling field") as raised:
        SamplingParams.merged({"temprature": 1})
    assert raised.value.hint == "did you mean `temperature`"
    with pytest.raises(RequestError) as raised:
        SamplingParams.merged({"xyz": 1})
    assert raised.value.hint is not None and raised.value.hint.startswith(
        "known: allowed_token_ids, "
    )


def test_generation_config_gives_the_fields_that_vllm_takes_from_it() -> None:
    fields = generation_config_fields(
        {
            "do_sample": False,
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.8,
            "max_new_tokens": 99,
            "repetition_penalty": 1.05,
            "min_p": 0.0,
            "eos_token_id": [1, 2],
        }
    )
    assert fields == {
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
        "min_p": 0.0,
        "repetition_penalty": 1.05,
        "max_tokens": 99,
    }
    assert SamplingParams.merged({"min_p": 0.5}, fields).repetition_penalty == 1.05


def test_an_empty_generation_config_leaves_the_defaults_of_vllm() -> None:
    fields = generation_config_fields({"bos_token_id": 1, "top_k": None})
    assert SamplingParams.merged({}, fields) == SamplingParams()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


@given(
    fields=st.dictionaries(
        st.sampled_from(sorted({*SAMPLING_FIELDS, *UNSUPPORTED_FIELDS})), JSON, max_size=4
    )
)
def test_any_values_make_parameters_or_a_request_error(fields: dict[str, Any]) -> None:
    try:
        params = SamplingParams.merged(fields)
    except RequestError as error:
        assert error.code in ("invalid_sampling", "unsupported_field")
    else:
        assert params.max_tokens is None or params.min_tokens <= params.max_tokens
        hash(params)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("seed", 2**63, f"an integer from {-(2**63)} to {2**63 - 1}"),
        ("seed", "1", f"an integer from {-(2**63)} to {2**63 - 1}"),
        ("max_tokens", 0, "an integer >= 1"),
        ("max_tokens", 2**63, f"an integer from 1 to {2**63 - 1}"),
        ("top_k", 1.5, "an integer >= -1"),
        ("n", 0, "an integer from 1 to 16384"),
        ("min_p", 2, "a number in [0, 1]"),
        ("top_p", 0, "a number in (0, 1]"),
        ("presence_penalty", 3, "a number in [-2, 2]"),
        ("repetition_penalty", 0, "a finite number > 0"),
        ("allowed_token_ids", [], "a list of at least one token id"),
        ("bad_words", "a", "a list of strings, none of them empty"),
    ],
)
def test_the_range_that_is_told_is_the_range_that_holds(
    field: str, value: object, allowed: str
) -> None:
    with pytest.raises(RequestError) as raised:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert raised.value.message == f"`{field}` is {value!r}, not {allowed}"


def test_a_number_too_long_to_be_written_is_refused_all_the_same() -> None:
    with pytest.raises(RequestError, match="`seed` is a number of thousands of digits"):
        SamplingParams(seed=10**5000)
