"""What requests may ask for where graphs give tokens."""

from __future__ import annotations

from typing import Any

import pytest

from neuron_llm import SamplingParams
from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.greedy_only import check_greedy_only, default_fields

WAY_OUT = ", or compile without `neuron_config.on_device_sampling_config`"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 0.7}, "`temperature` is 0.7, which needs logits, {}: set it to 0"),
        ({"temperature": 1.0, "min_p": 0.1}, "`temperature` is 1.0, {}: set it to 0"),
        ({"repetition_penalty": 1.1}, "`repetition_penalty` is 1.1, {}: set it to 1"),
        ({"presence_penalty": -1}, "`presence_penalty` is -1, {}: set it to 0"),
        ({"frequency_penalty": 0.5}, "`frequency_penalty` is 0.5, {}: set it to 0"),
        ({"logit_bias": {"5": 1}}, "`logit_bias` is ((5, 1.0),), {}: remove it"),
        ({"allowed_token_ids": [3]}, "`allowed_token_ids` is (3,), {}: remove it"),
        ({"bad_words": ["no"]}, "`bad_words` is ('no',), {}: remove it"),
        ({"min_tokens": 2}, "`min_tokens` is 2, {}: set it to 0"),
        ({"logprobs": 0}, "`logprobs` is 0, {}: remove it"),
        ({"prompt_logprobs": 1}, "`prompt_logprobs` is 1, {}: remove it"),
    ],
)
def test_what_needs_logits_is_refused_by_name_with_the_way_out(
    fields: dict[str, Any], message: str
) -> None:
    needs = "which needs logits, and the graphs of this artifact give the most likely token only"
    with pytest.raises(RequestError) as caught:
        check_greedy_only(SamplingParams(**{"temperature": 0, **fields}))
    expected = message.replace("which needs logits, {}", "{}").format(needs)
    assert (caught.value.message, caught.value.code) == (expected + WAY_OUT, "needs_logits")


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 0, "top_p": 0.5, "min_p": 0.3, "top_k": 40, "seed": 3},
        {"temperature": 1.5, "top_k": 1, "n": 2},
        {"temperature": 0, "stop": ["x"], "stop_token_ids": [4], "ignore_eos": True},
        {"temperature": 0, "max_tokens": None, "skip_special_tokens": False},
    ],
)
def test_what_leaves_the_most_likely_token_passes(fields: dict[str, Any]) -> None:
    check_greedy_only(SamplingParams(**fields))


def test_a_request_without_a_temperature_is_greedy_and_one_with_a_temperature_keeps_it() -> None:
    defaults, model = default_fields(samples_greedily=True), {"temperature": 0.6, "top_p": 0.9}
    assert SamplingParams.merged({}, defaults, model).temperature == 0
    assert SamplingParams.merged({"temperature": 0.5}, defaults, model).temperature == 0.5
    assert default_fields(samples_greedily=False) == {}
