"""Faults of schedulers on integers: what never fits, what stalls, what is counted wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from config_factory import faults, plan
from scheduler_factory import (
    Step,
    add_requests,
    ends,
    make_neuron,
    make_request,
    make_scheduler,
    run_to_end,
    step,
)
from streams import BOTH_CLASSES, StreamRun, random_stream

from neuron_llm.errors import NoProgressError, RequestError
from neuron_llm.scheduler import (
    AsyncScheduler,
    HoldReason,
    NeuronAsyncScheduler,
    NeuronScheduler,
    Request,
    Scheduler,
    SchedulerOutput,
)
from neuron_llm.scheduler.buckets import DecodeBucket

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
EACH_ADMISSION = pytest.mark.parametrize("kv_admission", ["reserve", "max_model_len"])
ALL_FOUR = [Scheduler, AsyncScheduler, NeuronScheduler, NeuronAsyncScheduler]


def test_a_cache_that_cannot_hold_one_request_is_refused_at_start(tmp_path: Path) -> None:
    """The fault: a prompt that the model allows waits for ever, since the cache is too small."""
    text = "max_model_len: 64\nblock_size: 4\nnum_gpu_blocks_override: 9\n"
    (fault,) = faults(tmp_path, text)
    assert "9 KV blocks cannot hold one request of `max_model_len` (64)" in fault
    assert "which needs 17 blocks of 4 tokens, the null block included; write 17" in fault


@pytest.mark.parametrize("scheduler_class", ALL_FOUR)
def test_every_scheduler_refuses_what_never_fits_when_it_is_added(
    scheduler_class: type[Scheduler],
) -> None:
    """The fault: the request enters the queue, and everybody behind it waits with it."""
    scheduler = make_scheduler(scheduler_class, num_blocks=9)
    scheduler.add_request(make_request("before", 20))
    with pytest.raises(RequestError, match="needs 11 KV blocks and 8 are available") as caught:
        scheduler.add_request(make_request("never", 40))
    assert caught.value.code == "kv_too_small"
    assert set(scheduler.requests) == {"before"} and len(scheduler.waiting) == 1
    # One token less than the whole cache holds, counting the token that is never written.
    scheduler.add_request(make_request("behind", 30, max_tokens=3))
    assert ends(run_to_end(scheduler)) == {"before": "length", "behind": "length"}


@EACH_CLASS
@EACH_ADMISSION
def test_no_decode_step_has_more_rows_than_blocks(
    tmp_path: Path, scheduler_class: type[NeuronScheduler], kv_admission: str
) -> None:
    """The fault: a decode graph is compiled for more rows than there can ever be."""
    planned = plan(
        tmp_path,
        "max_model_len: 8\nblock_size: 4\nmax_num_batched_tokens: 8\nmax_num_seqs: 4\n"
        f"num_gpu_blocks_override: 3\nkv_admission: {kv_admission}\n",
    )
    # Of the three blocks one is the null block, and a request of full length takes the others.
    max_rows = {"reserve": 2, "max_model_len": 1}[kv_admission]
    assert planned.shapes.max_decode_seqs == max_rows
    dropped = [DecodeBucket(n, 8) for n in (2, 4) if n > max_rows]
    assert [unreachable.bucket for unreachable in planned.unreachable] == dropped
    limits: dict[str, Any] = {
        **{"max_model_len": 8, "max_num_batched_tokens": 8, "block_size": 4},
        **{"max_num_seqs": 4, "num_blocks": 3, "kv_admission": kv_admission},
    }
    sizes = {
        len(output.num_scheduled_tokens)
        for seed in range(60)
        for output in outputs_of_stream(seed, scheduler_class, **limits)
        if not output.scheduled_new_reqs
    }
    assert max(sizes) <= max_rows
    # And so many can be: a request of four tokens takes one block.
    scheduler = make_scheduler(scheduler_class, **limits)
    add_requests(scheduler, *(make_request(f"r{i}", 1, max_tokens=4) for i in range(4)))
    assert max(len(s.num_tokens) for s in run_to_end(scheduler)) == max_rows


def outputs_of_stream(
    seed: int, scheduler_class: type[NeuronScheduler], **changes: object
) -> list[SchedulerOutput]:
    """Run a random stream, and return its steps; one that is empty for no reason is a fault."""
    outputs: list[SchedulerOutput] = []

    class Recorded(StreamRun):
        def check_step(self, output: SchedulerOutput) -> None:
            super().check_step(output)
            outputs.append(output)
            is_idle = not output.num_scheduled_tokens and not self.in_flight
            assert not (is_idle and self.scheduler.requests), "an empty step, and nothing to come"

    Recorded(random_stream(seed, **changes), scheduler_class).run()
    return outputs


@EACH_CLASS
def test_unfinished_requests_mean_a_step_that_does_something(
    scheduler_class: type[NeuronScheduler],
) -> None:
    """The fault: requests are left, and step after step schedules nothing."""
    num_steps = 0
    for seed in range(150):
        outputs = outputs_of_stream(seed, scheduler_class)
        num_steps += sum(bool(output.num_scheduled_tokens) for output in outputs)
    assert num_steps > 5000


@EACH_CLASS
@EACH_ADMISSION
def test_decodes_that_hold_every_block_decode_while_a_prompt_waits(
    scheduler_class: type[NeuronScheduler], kv_admission: str
) -> None:
    """The fault: decodes are hidden for a prompt for which no block is free, for ever."""
    scheduler = make_scheduler(scheduler_class, num_blocks=33, kv_admission=kv_admission)
    add_requests(scheduler, *(make_request(f"d{i}", 61, max_tokens=3) for i in range(2)))
    for _ in range(8):
        step(scheduler)
    assert scheduler.kv_cache_manager.num_free_blocks == 0
    scheduler.add_request(make_request("w", 3))
    assert step(scheduler).num_tokens == {"d0": 1, "d1": 1}
    assert scheduler.last_stats and scheduler.last_stats.hold_reason is HoldReason.KV
    assert set(ends(run_to_end(scheduler))) == {"d0", "d1", "w"}


@EACH_CLASS
def test_a_request_deferred_for_ever_ends_in_an_error_once_the_others_are_done(
    scheduler_class: type[NeuronScheduler],
) -> None:
    """The fault: running and deferred requests reach the cap, and all looks healthy."""

    class DefersOne(scheduler_class):  # type: ignore[misc,valid-type]
        def _find_hold_reason(self, request: Request) -> HoldReason | None:
            if request.request_id == "stuck":
                return HoldReason.SLOTS
            reason: HoldReason | None = super()._find_hold_reason(request)
            return reason

    scheduler: NeuronScheduler = make_scheduler(DefersOne, max_num_seqs=2)
    add_requests(scheduler, *(make_request(i) for i in ("a", "b", "stuck", "behind")))
    steps: list[Step] = []
    with pytest.raises(NoProgressError) as caught:
        for _ in range(50):
            steps.append(step(scheduler))
    # Two prompts and, together, the three tokens that follow the first: then at once the error.
    assert ends(steps) == {"a": "length", "b": "length"}
    assert len(steps) == 5
    assert "`stuck` waits: all `max_num_seqs` slots are taken" in caught.value.message
    assert "waiting ['stuck', 'behind'] of 2" in caught.value.message


@EACH_CLASS
def test_a_chunk_leaves_nothing_scheduled_behind(scheduler_class: type[NeuronScheduler]) -> None:
    """The fault: the continuation of a prompt stays in the set of what is scheduled."""
    scheduler = make_scheduler(scheduler_class)
    add_requests(scheduler, *(make_request(f"r{i}", 37) for i in range(4)))
    tokens = []
    while scheduler.has_unfinished_requests():
        tokens.append(step(scheduler).num_tokens)
        assert not scheduler._has_steps_in_flight()
    prefills = [{f"r{i}": n} for i in range(4) for n in (16, 16, 5)]
    assert tokens == prefills + [dict.fromkeys([f"r{i}" for i in range(4)], 1)] * 3


@EACH_CLASS
@pytest.mark.parametrize("num_decoded", [0, 1, 7, 20])
@pytest.mark.parametrize("is_over", [False, True])
def test_a_batch_exactly_at_the_limit_is_admitted_and_one_token_more_is_not(
    scheduler_class: type[NeuronScheduler], num_decoded: int, is_over: bool
) -> None:
    """The fault: the prompt counts twice in what a running request may still need."""
    # 8 + 25 tokens, 32 of them written, fill half of the 16 usable blocks.
    scheduler = make_scheduler(scheduler_class, num_blocks=17, enable_prefix_caching=False)
    scheduler.add_request(make_request("running", 8, max_tokens=25))
    for _ in range(1 + num_decoded):
        step(scheduler)
    scheduler.add_request(make_request("new", 8, max_tokens=26 if is_over else 25))
    assert step(scheduler).num_tokens == ({"running": 1} if is_over else {"new": 8})
    assert set(ends(run_to_end(scheduler))) == {"running", "new"}


@EACH_CLASS
@pytest.mark.parametrize("max_consecutive_prefills", [None, 1])
def test_a_prefill_step_has_the_whole_budget_and_its_chunks_are_aligned(
    scheduler_class: type[NeuronScheduler], max_consecutive_prefills: int | None
) -> None:
    """The fault: decodes take their tokens from the budget, and all later chunks are askew."""
    scheduler = make_scheduler(scheduler_class, max_consecutive_prefills=max_consecutive_prefills)
    scheduler.add_request(make_request("d", max_tokens=40))
    step(scheduler)
    add_requests(scheduler, make_request("p", 16), make_request("q", 50))
    chunks: dict[str, list[tuple[int, int]]] = {"p": [], "q": []}
    while "q" in scheduler.requests:
        output = step(scheduler).scheduled
        cached = output.scheduled_cached_reqs
        starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        starts |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        for request_id, start in starts.items():
            is_chunk = request_id != "d" and start < {"p": 16, "q": 50}[request_id]
            if is_chunk:
                num_tokens = output.num_scheduled_tokens[request_id]
                chunks[request_id].append((start, num_tokens))
    assert chunks == {"p": [(0, 16)], "q": [(0, 16), (16, 16), (32, 16), (48, 2)]}


@EACH_CLASS
@EACH_ADMISSION
def test_a_head_that_was_blocked_starts_in_the_first_step_in_which_it_fits(
    scheduler_class: type[NeuronScheduler], kv_admission: str
) -> None:
    """The fault: small requests that come later go on overtaking the head of the queue."""
    scheduler = make_scheduler(
        scheduler_class, num_blocks=17, enable_prefix_caching=False, kv_admission=kv_admission
    )
    scheduler.add_request(make_request("a", 30, max_tokens=10))
    step(scheduler)
    add_requests(scheduler, make_request("big", 50), make_request("small", 1))
    late: list[str] = []
    while "a" in scheduler.requests:
        assert next(iter(step(scheduler).num_tokens)) == "a"
        late.append(f"late{len(late)}")
        scheduler.add_request(make_request(late[-1], 1))
    assert len(late) > 5
    assert step(scheduler).num_tokens == {"big": 16}
    started = [n.req_id for s in run_to_end(scheduler) for n in s.scheduled.scheduled_new_reqs]
    assert started == ["small", *late]


def test_four_times_as_many_requests_as_slots_keep_every_row_busy() -> None:
    """The fault: throughput collapses as soon as more requests come than there are slots."""
    scheduler = make_neuron(max_num_seqs=4, num_blocks=65)
    add_requests(scheduler, *(make_request(f"r{i}", max_tokens=17) for i in range(16)))
    decodes = [s.num_tokens for s in run_to_end(scheduler) if set(s.num_tokens.values()) == {1}]
    # 16 requests with 16 tokens each after the first, in rows of 4.
    ideal = 16 * 16 // 4
    assert ideal <= len(decodes) <= 1.1 * ideal
    assert sum(map(len, decodes)) == 16 * 16
