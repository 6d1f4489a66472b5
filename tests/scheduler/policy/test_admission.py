from __future__ import annotations

from typing import Any

import pytest
from scheduler_factory import make_config, make_request

from neuron_llm.errors import ConfigError, RequestError
from neuron_llm.scheduler import Request
from neuron_llm.scheduler.policy.admission import KVAdmission, check_request, worst_case_blocks


class FakeKV:
    """A KV cache that answers what it is told to."""

    def __init__(self, num_free_blocks: int, held: int = 0, in_use: int = 0) -> None:
        self.num_free_blocks = num_free_blocks
        self.held = held
        self.in_use = in_use

    def blocks_held(self, request: Request) -> int:
        return self.held

    def cached_in_use(self, request: Request) -> int:
        return self.in_use


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "num_blocks"),
    [
        (8, 1, 2),  # the only sampled token is never written
        (8, 2, 3),
        (9, 1, 3),
        (5, 4, 2),  # 9 tokens, 8 of them written
        (5, 5, 3),
        (60, 4, 16),
        (60, 400, 16),  # cut at 64 tokens, 63 of them written
        (63, 10, 16),
    ],
)
def test_the_worst_case_is_exact(prompt_len: int, max_tokens: int, num_blocks: int) -> None:
    request = make_request(prompt_len=prompt_len, max_tokens=max_tokens)
    assert worst_case_blocks(request, max_model_len=64, block_size=4) == num_blocks


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (make_request(prompt=[]), "empty_prompt"),
        (make_request(prompt_len=64), "prompt_too_long"),
        (make_request(prompt_len=65), "prompt_too_long"),
        (make_request(max_tokens=0), "invalid_sampling"),
        (make_request(max_tokens=-1), "invalid_sampling"),
        (make_request(max_tokens=1.5), "invalid_sampling"),  # type: ignore[arg-type]
        (make_request(max_tokens="5"), "invalid_sampling"),  # type: ignore[arg-type]
        (make_request(max_tokens=True), "invalid_sampling"),
        (make_request(min_tokens=-1), "invalid_sampling"),
        (make_request(min_tokens=5, max_tokens=4), "invalid_sampling"),
        (make_request(prompt_len=30, max_tokens=4), "kv_too_small"),
    ],
)
def test_a_request_that_could_never_run_is_refused(request_: Request, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_request(request_, make_config(num_blocks=9))
    assert caught.value.code == code


def test_the_longest_prompt_leaves_one_token_of_room() -> None:
    check_request(make_request(prompt_len=63, max_tokens=10), make_config())


def test_a_request_that_fills_the_whole_pool_is_accepted() -> None:
    config = make_config(num_blocks=9)
    check_request(make_request(prompt_len=30, max_tokens=3), config)
    with pytest.raises(RequestError, match="needs 9 KV blocks and 8 are available"):
        check_request(make_request(prompt_len=30, max_tokens=4), config)


@pytest.mark.parametrize(
    ("num_blocks", "max_concurrent"), [(17, 1), (32, 1), (33, 2), (34, 2), (48, 2), (49, 3)]
)
def test_the_null_block_is_not_room_for_a_request(num_blocks: int, max_concurrent: int) -> None:
    config = make_config(num_blocks=num_blocks, kv_admission="max_model_len")
    admission = KVAdmission(config, FakeKV(num_free_blocks=0))
    assert admission.max_concurrent == max_concurrent
    running = [make_request(f"r{i}") for i in range(max_concurrent)]
    assert admission.has_room(make_request("new"), running[:-1])
    assert not admission.has_room(make_request("new"), running)


@pytest.mark.parametrize("num_blocks", [2, 16])
def test_room_for_no_request_is_an_error_at_start(num_blocks: int) -> None:
    config = make_config(num_blocks=num_blocks, kv_admission="max_model_len")
    with pytest.raises(ConfigError, match="17 blocks are needed"):
        KVAdmission(config, FakeKV(num_free_blocks=num_blocks - 1))


def test_reserving_serves_short_requests_where_the_longest_does_not_fit() -> None:
    admission = KVAdmission(make_config(num_blocks=9), FakeKV(num_free_blocks=8))
    assert admission.has_room(make_request(prompt_len=30, max_tokens=3), [])


@pytest.mark.parametrize(
    ("kv", "has_room"),
    [
        # The running one needs 5 blocks and holds 2, the new one needs 3.
        ({"num_free_blocks": 6, "held": 2}, True),
        ({"num_free_blocks": 5, "held": 2}, False),
        ({"num_free_blocks": 5, "held": 3}, True),
        ({"num_free_blocks": 5, "held": 2, "in_use": 1}, True),
        ({"num_free_blocks": 4, "held": 2, "in_use": 1}, False),
        ({"num_free_blocks": 4, "held": 2, "in_use": 2}, True),
    ],
)
def test_reserving_counts_what_running_requests_may_still_need(
    kv: dict[str, Any], has_room: bool
) -> None:
    running = make_request("a", prompt_len=10, max_tokens=11)
    request = make_request("b", prompt_len=10, max_tokens=3)
    admission = KVAdmission(make_config(), FakeKV(**kv))
    assert admission.worst_case_blocks(running) == 5
    assert admission.worst_case_blocks(request) == 3
    assert admission.has_room(request, [running]) is has_room


def test_the_explanation_holds_the_numbers() -> None:
    running = [make_request("a", prompt_len=10, max_tokens=11)]
    request = make_request("b", prompt_len=10, max_tokens=3)
    reserve = KVAdmission(make_config(), FakeKV(num_free_blocks=4, held=2, in_use=1))
    assert reserve.explain(request, running) == (
        "3 blocks needed, 1 of them shared, 4 free, 3 promised to running requests"
    )
    config = make_config(num_blocks=17, kv_admission="max_model_len")
    bound = KVAdmission(config, FakeKV(num_free_blocks=4))
    assert bound.explain(request, running) == "1 running, room for 1 of `max_model_len`"
