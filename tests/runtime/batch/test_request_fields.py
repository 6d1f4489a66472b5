from __future__ import annotations

from typing import Any

import pytest

from neuron_llm.errors import RequestError
from neuron_llm.runtime.batch.request_fields import sampling_fields


def test_sampling_fields_are_picked_and_others_left() -> None:
    request = {"prompt": "a", "top_k": 3, "logit_bias": {"5": 1}, "n": None, "model": "m"}
    assert sampling_fields(request) == {"top_k": 3, "logit_bias": {"5": 1}, "n": None}


def test_max_completion_tokens_is_max_tokens() -> None:
    assert sampling_fields({"max_completion_tokens": 7, "max_tokens": 3}) == {"max_tokens": 7}
    assert sampling_fields({"max_completion_tokens": None}) == {}


@pytest.mark.parametrize(
    ("request_fields", "logprobs"),
    [
        ({"logprobs": True, "top_logprobs": 5}, 5),
        ({"logprobs": True, "top_logprobs": -1}, -1),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": None}, 0),
        ({"logprobs": True}, 0),
        ({"logprobs": False, "top_logprobs": 0}, False),
        ({"logprobs": 3, "top_logprobs": 0}, 3),
        ({"logprobs": 3}, 3),
        ({"logprobs": None, "top_logprobs": None}, None),
    ],
)
def test_true_asks_for_top_logprobs_and_a_number_for_itself(
    request_fields: dict[str, Any], logprobs: object
) -> None:
    assert sampling_fields(request_fields) == {"logprobs": logprobs}


@pytest.mark.parametrize("logprobs", [{}, {"logprobs": False}, {"logprobs": 3}])
def test_top_logprobs_without_logprobs_are_refused(logprobs: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="`top_logprobs` is 2, but `logprobs` is not true"):
        sampling_fields({**logprobs, "top_logprobs": 2})


@pytest.mark.parametrize("value", [-2, 1.5, "3", True, False])
def test_top_logprobs_that_are_no_count_are_refused_by_name(value: object) -> None:
    with pytest.raises(RequestError, match=r"`top_logprobs` is .*, not an integer >= -1"):
        sampling_fields({"logprobs": True, "top_logprobs": value})
