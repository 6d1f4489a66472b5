"""Sampling fields that come in several forms, and those that are checked against each other."""

from __future__ import annotations

from typing import Any

import pytest

from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.sampling_params import SamplingParams


def test_true_asks_for_the_log_probability_of_one_token_and_false_for_none() -> None:
    params = SamplingParams(logprobs=True, prompt_logprobs=False)
    assert (params.logprobs, params.prompt_logprobs) == (1, None)
    assert type(params.logprobs) is int


def test_logit_bias_is_clamped_and_its_keys_may_be_digits() -> None:
    biases: Any = {"7": 3, 5: -100.5, 6: 1e9}
    params = SamplingParams(logit_bias=biases)
    assert params.logit_bias == ((5, -100.0), (6, 100.0), (7, 3.0))
    assert SamplingParams(logit_bias=params.logit_bias) == params
    assert SamplingParams(logit_bias={}) == SamplingParams()


def test_allowed_token_ids_and_bad_words_become_tuples_of_different_ones() -> None:
    assert SamplingParams(allowed_token_ids=[7, 5, 7]).allowed_token_ids == (7, 5)
    assert SamplingParams(bad_words=["b", "a", "b"]).bad_words == ("b", "a")


def test_several_greedy_completions_are_refused_as_in_vllm() -> None:
    with pytest.raises(RequestError, match="`n` is 2, but with `temperature` 0 every") as raised:
        SamplingParams(n=2, temperature=0)
    assert raised.value.code == "invalid_sampling"
    assert SamplingParams(n=1, temperature=0).n == 1
    assert SamplingParams(n=2, top_k=1).is_greedy


def test_best_of_other_than_n_is_not_supported() -> None:
    with pytest.raises(RequestError, match="`best_of` is 3, not `n`, 2") as raised:
        SamplingParams(n=2, best_of=3)
    assert raised.value.code == "unsupported_field"
    assert SamplingParams(n=2, best_of=2) == SamplingParams(n=2)
    # The two may come from different layers.
    assert SamplingParams.merged({"best_of": 2}, {"n": 2}).n == 2
    with pytest.raises(RequestError, match="`best_of` is 2, not `n`, 1"):
        SamplingParams.merged({"best_of": 2})
