from __future__ import annotations

import pytest
from scheduler_factory import EOS_TOKEN_ID, make_request

from neuron_llm.scheduler import Request, RequestStatus
from neuron_llm.scheduler.stop import check_stop

STOP = RequestStatus.FINISHED_STOPPED
LENGTH = RequestStatus.FINISHED_LENGTH_CAPPED


def make_stopping(**fields: object) -> Request:
    values: dict[str, object] = {
        "max_tokens": 10,
        "eos_token_ids": frozenset({EOS_TOKEN_ID, 3}),
        "stop_token_ids": frozenset({42, 43}),
        **fields,
    }
    return make_request(prompt_len=5, **values)  # type: ignore[arg-type]


def feed(request: Request, *token_ids: int, max_model_len: int = 64) -> int:
    """Append tokens until one ends the request; return how many were appended."""
    request.set_max_model_len(max_model_len)
    for count, token_id in enumerate(token_ids, start=1):
        request.append_output_token_id(token_id)
        if check_stop(request):
            return count
    return 0


@pytest.mark.parametrize("eos", [EOS_TOKEN_ID, 3])
def test_any_eos_token_stops_without_a_stop_reason(eos: int) -> None:
    request = make_stopping()
    assert feed(request, 7, eos, 7) == 2
    assert (request.status, request.stop_reason) == (STOP, None)


def test_a_stop_token_is_its_own_stop_reason() -> None:
    request = make_stopping()
    assert feed(request, 7, 43) == 2
    assert (request.status, request.stop_reason) == (STOP, 43)


def test_eos_wins_over_an_equal_stop_token() -> None:
    request = make_stopping(stop_token_ids=frozenset({EOS_TOKEN_ID}))
    feed(request, EOS_TOKEN_ID)
    assert (request.status, request.stop_reason) == (STOP, None)


def test_ignored_eos_still_stops_as_a_stop_token() -> None:
    request = make_stopping(ignore_eos=True, stop_token_ids=frozenset({EOS_TOKEN_ID}))
    assert feed(request, 3, EOS_TOKEN_ID) == 2
    assert request.stop_reason == EOS_TOKEN_ID


def test_max_tokens_ends_by_length() -> None:
    request = make_stopping(max_tokens=3)
    assert feed(request, 7, 7, 7, 7) == 3
    assert (request.status, request.stop_reason) == (LENGTH, None)


def test_max_model_len_ends_by_length() -> None:
    request = make_stopping()
    assert feed(request, 7, 7, 7, max_model_len=7) == 2
    assert request.status is LENGTH


def test_eos_on_the_last_allowed_token_is_a_stop() -> None:
    request = make_stopping(max_tokens=1)
    feed(request, EOS_TOKEN_ID)
    assert request.status is STOP


@pytest.mark.parametrize("token_id", [EOS_TOKEN_ID, 42])
def test_min_tokens_lets_eos_and_stop_tokens_pass(token_id: int) -> None:
    request = make_stopping(min_tokens=3)
    assert feed(request, token_id, token_id, token_id) == 3
    assert request.status is STOP


def test_length_ends_a_request_before_min_tokens() -> None:
    request = make_stopping(min_tokens=5)
    assert feed(request, 7, EOS_TOKEN_ID, max_model_len=7) == 2
    assert request.status is LENGTH
