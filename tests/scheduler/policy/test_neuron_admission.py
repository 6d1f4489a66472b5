"""Who starts when blocks are short, and that nothing ever stalls for them."""

from __future__ import annotations

import pytest
from scheduler_factory import (
    add_requests,
    ends,
    make_neuron,
    make_request,
    make_scheduler,
    run_to_end,
    step,
)
from streams import BOTH_CLASSES

from neuron_llm.errors import ConfigError, RequestError
from neuron_llm.scheduler import HoldReason, NeuronScheduler

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
EACH_ADMISSION = pytest.mark.parametrize("kv_admission", ["reserve", "max_model_len"])


@EACH_CLASS
def test_a_prompt_beyond_the_whole_kv_cache_is_refused_and_the_others_finish(
    scheduler_class: type[NeuronScheduler],
) -> None:
    scheduler = make_scheduler(scheduler_class, num_blocks=9)
    scheduler.add_request(make_request("a", prompt_len=20))
    with pytest.raises(RequestError, match="needs 11 KV blocks and 8 are available"):
        scheduler.add_request(make_request("b", prompt_len=40))
    scheduler.add_request(make_request("c", prompt_len=20))
    assert ends(run_to_end(scheduler)) == {"a": "length", "c": "length"}


@EACH_ADMISSION
def test_decodes_that_hold_all_blocks_are_not_hidden_for_a_prompt(kv_admission: str) -> None:
    scheduler = make_neuron(num_blocks=33, kv_admission=kv_admission)
    add_requests(scheduler, *(make_request(f"d{i}", 50, max_tokens=14) for i in range(2)))
    for _ in range(8):
        step(scheduler)
    scheduler.add_request(make_request("w", prompt_len=50))
    assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    assert scheduler.last_stats and scheduler.last_stats.hold_reason is HoldReason.KV
    assert len(ends(run_to_end(scheduler))) == 3


@EACH_CLASS
@EACH_ADMISSION
@pytest.mark.parametrize("num_blocks", [31, 32, 33, 47, 48, 49])
def test_no_number_of_blocks_stalls_requests_that_fill_them(
    scheduler_class: type[NeuronScheduler], kv_admission: str, num_blocks: int
) -> None:
    scheduler = make_scheduler(
        scheduler_class,
        num_blocks=num_blocks,
        kv_admission=kv_admission,
        enable_prefix_caching=False,
    )
    add_requests(scheduler, *(make_request(f"r{i}", 30 + i, max_tokens=64) for i in range(6)))
    assert len(ends(run_to_end(scheduler))) == 6
    assert scheduler.kv_cache_manager.num_free_blocks == num_blocks - 1


def test_a_request_starts_exactly_when_its_worst_case_fits() -> None:
    # Each takes 5 of the 15 usable blocks at its end.
    scheduler = make_neuron(num_blocks=16, max_num_seqs=8, enable_prefix_caching=False)
    add_requests(scheduler, *(make_request(f"r{i}", 8, max_tokens=13) for i in range(4)))
    for _ in range(4):
        step(scheduler)
    assert [r.request_id for r in scheduler.running] == ["r0", "r1", "r2"]
    more = make_neuron(num_blocks=21, max_num_seqs=8, enable_prefix_caching=False)
    add_requests(more, *(make_request(f"r{i}", 8, max_tokens=13) for i in range(4)))
    for _ in range(4):
        step(more)
    assert len(more.running) == 4


def test_reserving_runs_more_requests_than_the_length_bound() -> None:
    running = {}
    for kv_admission in ("reserve", "max_model_len"):
        scheduler = make_neuron(num_blocks=33, max_num_seqs=8, kv_admission=kv_admission)
        add_requests(scheduler, *(make_request(f"r{i}", 8, max_tokens=9) for i in range(8)))
        for _ in range(8):
            step(scheduler)
        running[kv_admission] = len(scheduler.running)
    assert running == {"reserve": 8, "max_model_len": 2}


def test_requests_that_share_a_prompt_reserve_it_once() -> None:
    prompt = list(range(40))
    scheduler = make_neuron(num_blocks=21, max_num_seqs=8)
    # 12 blocks at the end of each, 10 of them for the prompt and 9 of those shared.
    add_requests(scheduler, *(make_request(f"r{i}", prompt=prompt, max_tokens=9) for i in range(4)))
    for _ in range(3 + 3):
        step(scheduler)
    assert [r.request_id for r in scheduler.running] == ["r0", "r1", "r2"]
    assert len(ends(run_to_end(scheduler))) == 4


def test_the_length_bound_needs_room_for_one_request() -> None:
    with pytest.raises(ConfigError, match="17 blocks are needed"):
        make_neuron(num_blocks=16, kv_admission="max_model_len")
    assert make_neuron(num_blocks=17, kv_admission="max_model_len")._max_kv_concurrent == 1


def test_a_head_that_waits_for_blocks_is_served_before_later_arrivals() -> None:
    scheduler = make_neuron(num_blocks=17, enable_prefix_caching=False)
    scheduler.add_request(make_request("a", prompt_len=30, max_tokens=10))
    step(scheduler)
    add_requests(scheduler, make_request("big", prompt_len=50), make_request("small", prompt_len=1))
    started = [n.req_id for s in run_to_end(scheduler) for n in s.scheduled.scheduled_new_reqs]
    assert started == ["big", "small"]
