from __future__ import annotations

import pytest
from scheduler_factory import make_request

from neuron_llm.scheduler import FinishReason, RequestStatus


def test_a_new_request_is_its_prompt() -> None:
    request = make_request(prompt=[5, 6, 7])
    assert list(request.all_token_ids) == [5, 6, 7]
    assert list(request.output_token_ids) == []
    assert (request.num_prompt_tokens, request.num_output_tokens, request.num_tokens) == (3, 0, 3)
    assert request.num_computed_tokens == request.num_output_placeholders == 0
    assert request.status is RequestStatus.WAITING and request.finish_reason is None


def test_appended_tokens_are_output_and_leave_the_prompt_alone() -> None:
    prompt = [5, 6]
    request = make_request(prompt=prompt)
    request.append_output_token_id(8)
    request.append_output_token_id(9)
    assert list(request.output_token_ids) == [8, 9]
    assert list(request.all_token_ids) == [5, 6, 8, 9]
    assert (request.num_prompt_tokens, request.num_output_tokens, request.num_tokens) == (2, 2, 4)
    assert prompt == [5, 6] == list(request.prompt_token_ids)


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (RequestStatus.FINISHED_STOPPED, FinishReason.STOP, "stop"),
        (RequestStatus.FINISHED_LENGTH_CAPPED, FinishReason.LENGTH, "length"),
        (RequestStatus.FINISHED_ABORTED, FinishReason.ABORT, "abort"),
    ],
)
def test_each_finished_status_has_its_reason(
    status: RequestStatus, reason: FinishReason, text: str
) -> None:
    request = make_request()
    request.status = status
    assert status.is_finished
    assert request.finish_reason is reason and reason == text


def test_waiting_and_running_are_not_finished() -> None:
    assert not RequestStatus.WAITING.is_finished
    assert not RequestStatus.RUNNING.is_finished


def test_requests_of_equal_content_are_different_requests() -> None:
    assert make_request() != make_request()
