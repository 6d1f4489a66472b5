from __future__ import annotations

from typing import Any

import pytest

from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.sampling.vocabulary_check import check_prompt, check_sampling


@pytest.mark.parametrize("token_id", [-1, 10, 10**12])
def test_a_prompt_token_outside_the_vocabulary_is_refused(token_id: int) -> None:
    with pytest.raises(RequestError, match=rf"token id {token_id} is outside .* \(0 to 9\)"):
        check_prompt([0, 9, token_id], 10)
    check_prompt([0, 9], 10)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop_token_ids": [3, 10, 11]}, "`stop_token_ids` holds [10, 11], outside the"),
        ({"logit_bias": {9: 1, 10: 1}}, "`logit_bias` holds [10], outside the vocabulary (0 to 9)"),
        ({"allowed_token_ids": [10**12]}, "`allowed_token_ids` holds [1000000000000], outside"),
        ({"logprobs": 11}, "`logprobs` is 11, more than the vocabulary has tokens, 10"),
        ({"prompt_logprobs": 11}, "`prompt_logprobs` is 11, more than the vocabulary"),
    ],
)
def test_parameters_outside_the_vocabulary_are_refused_by_name(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as raised:
        check_sampling(SamplingParams(**fields), [], 10)
    assert raised.value.code == "invalid_sampling"
    assert raised.value.message.startswith(message)


def test_bad_words_outside_the_models_vocabulary_are_refused() -> None:
    with pytest.raises(RequestError, match=r"`bad_words` holds \[12\], outside"):
        check_sampling(SamplingParams(bad_words=["x"]), [[1], [2, 12]], 10)


def test_the_whole_vocabulary_is_allowed() -> None:
    params = SamplingParams(
        stop_token_ids=[9],
        logit_bias={9: 1, 0: 1},
        allowed_token_ids=list(range(10)),
        logprobs=10,
        prompt_logprobs=-1,
    )
    check_sampling(params, [[9]], 10)
    check_sampling(SamplingParams(), [], 10)
