"""The two schedulers of the engine as a whole: worked examples, liveness, fairness, accounting."""

from __future__ import annotations

from itertools import pairwise

import pytest
from scheduler_factory import (
    EOS_TOKEN_ID,
    add_requests,
    ends,
    has_anything_to_say,
    make_neuron,
    make_request,
    make_scheduler,
    run_to_end,
    step,
)
from streams import BOTH_CLASSES

from neuron_llm.scheduler import (
    AsyncScheduler,
    FinishReason,
    HoldReason,
    NeuronAsyncScheduler,
    NeuronScheduler,
    Request,
    Scheduler,
    SchedulerState,
)

EACH_CLASS = pytest.mark.parametrize("scheduler_class", BOTH_CLASSES)
LARGE = {
    "max_num_seqs": 8,
    "max_num_batched_tokens": 8192,
    "max_model_len": 131_072,
    "block_size": 16,
    "num_blocks": 8193,
    "num_batched_tokens_buckets": (512, 1024, 2048, 4096, 8192),
}


def test_the_classes_inherit_as_their_names_say() -> None:
    assert issubclass(NeuronScheduler, Scheduler)
    assert issubclass(NeuronAsyncScheduler, NeuronScheduler | AsyncScheduler)
    assert not issubclass(NeuronScheduler, AsyncScheduler)


def test_a_prompt_of_32_000_runs_in_four_chunks_of_8_192() -> None:
    scheduler = make_neuron(**LARGE)
    request = make_request(prompt_len=32_000)
    scheduler.add_request(request)
    progress = [request.num_computed_tokens]
    padded = []
    for _ in range(4):
        padded.append(step(scheduler).scheduled.num_scheduled_tokens_padded)
        progress.append(request.num_computed_tokens)
        assert scheduler.state is SchedulerState.ACTIVE_PREFILL
    assert progress == [0, 8192, 16384, 24576, 32000]
    assert padded == [{"r0": 8192}] * 4
    assert step(scheduler).num_tokens == {"r0": 1}
    assert scheduler.total_padding_tokens == 4 * 8192 - 32_000
    assert scheduler.total_scheduled_tokens == 32_001


@pytest.mark.parametrize(
    ("prompt_len", "padded"),
    [(3000, 4096), (500, 512), (8192, 8192), (5000, 8192), (2048, 2048), (1, 512)],
)
def test_the_tensor_of_a_prefill_has_the_size_of_its_bucket(prompt_len: int, padded: int) -> None:
    scheduler = make_neuron(**LARGE)
    request = make_request(prompt_len=prompt_len)
    scheduler.add_request(request)
    output = step(scheduler).scheduled
    assert output.num_scheduled_tokens == {"r0": prompt_len}
    assert output.num_scheduled_tokens_padded == {"r0": padded}
    assert request.num_computed_tokens == prompt_len
    assert scheduler.total_padding_tokens == padded - prompt_len
    decode = step(scheduler).scheduled
    assert decode.num_scheduled_tokens == decode.num_scheduled_tokens_padded == {"r0": 1}


def test_a_prompt_of_200_takes_13_blocks_and_the_bucket_of_256() -> None:
    scheduler = make_neuron(**{**LARGE, "num_batched_tokens_buckets": (128, 256, 8192)})
    scheduler.add_request(make_request(prompt_len=200))
    output = step(scheduler).scheduled
    assert output.num_scheduled_tokens_padded == {"r0": 256}
    (new,) = output.scheduled_new_reqs
    assert new.block_ids == list(range(1, 14))
    assert new.num_computed_tokens == 0


def test_a_cached_prefix_is_neither_computed_nor_padded() -> None:
    scheduler = make_neuron(**{**LARGE, "block_size": 8, "num_blocks": 16_385})
    prompt = list(range(5000))
    scheduler.add_request(make_request("a", prompt=prompt[:1001], max_tokens=1))
    step(scheduler)
    second = make_request("b", prompt=prompt)
    scheduler.add_request(second)
    output = step(scheduler).scheduled
    assert output.scheduled_new_reqs[0].num_computed_tokens == 1000
    assert output.num_scheduled_tokens == {"b": 4000}
    assert output.num_scheduled_tokens_padded == {"b": 4096}
    assert second.num_computed_tokens == 5000


@EACH_CLASS
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_an_underfull_batch_works(scheduler_class: type[NeuronScheduler], count: int) -> None:
    scheduler = make_scheduler(scheduler_class)
    add_requests(scheduler, *(make_request(f"r{i}") for i in range(count)))
    assert ends(run_to_end(scheduler)) == {f"r{i}": "length" for i in range(count)}


def test_the_longest_prompt_yields_one_token() -> None:
    scheduler = make_neuron()
    scheduler.add_request(make_request(prompt_len=63, max_tokens=10))
    steps = run_to_end(scheduler)
    assert ends(steps) == {"r0": FinishReason.LENGTH}
    assert [s.num_tokens.get("r0", 0) for s in steps] == [16, 16, 16, 15, 0]
    assert sum(len(o.new_token_ids) for s in steps for o in s.outputs) == 1


@EACH_CLASS
def test_four_chunked_prompts_all_finish(scheduler_class: type[NeuronScheduler]) -> None:
    scheduler = make_scheduler(scheduler_class)
    add_requests(scheduler, *(make_request(f"r{i}", prompt_len=37) for i in range(4)))
    assert len(ends(run_to_end(scheduler))) == 4


def test_a_prefill_has_the_full_budget_beside_decodes() -> None:
    scheduler = make_neuron()
    scheduler.add_request(make_request("d", max_tokens=20))
    step(scheduler)
    scheduler.add_request(make_request("p", prompt_len=40))
    starts = []
    for _ in range(3):
        output = step(scheduler).scheduled
        starts += [new.num_computed_tokens for new in output.scheduled_new_reqs]
        starts += output.scheduled_cached_reqs.num_computed_tokens
    assert starts == [0, 16, 32]


@EACH_CLASS
def test_a_token_budget_below_max_num_seqs_does_not_limit_decodes(
    scheduler_class: type[NeuronScheduler],
) -> None:
    scheduler = make_scheduler(scheduler_class, max_num_batched_tokens=2, max_num_seqs=4)
    add_requests(scheduler, *(make_request(f"r{i}", prompt_len=2) for i in range(4)))
    for _ in range(4):
        assert step(scheduler).scheduled.total_num_scheduled_tokens <= 2
    assert step(scheduler).num_tokens == {f"r{i}": 1 for i in range(4)}


@EACH_CLASS
@pytest.mark.parametrize(("limit", "max_gap"), [(1, 2), (2, 3), (5, 6)])
def test_a_stream_of_prompts_delays_a_decode_by_a_bounded_number_of_steps(
    scheduler_class: type[NeuronScheduler], limit: int, max_gap: int
) -> None:
    scheduler = make_scheduler(scheduler_class, max_consecutive_prefills=limit)
    scheduler.add_request(make_request("d", max_tokens=20))
    token_steps = []
    for index in range(200):
        if len(scheduler.waiting) < 2:
            scheduler.add_request(make_request(f"p{index}", prompt_len=40, max_tokens=1))
        if any(o.request_id == "d" for o in step(scheduler).outputs):
            token_steps.append(index)
    gaps = [after - before for before, after in pairwise(token_steps)]
    assert len(token_steps) == 20 and max(gaps) == max_gap


def test_without_a_bound_prompts_go_first_for_as_long_as_they_come() -> None:
    scheduler = make_neuron()
    scheduler.add_request(make_request("d", max_tokens=20))
    step(scheduler)
    for index in range(50):
        scheduler.add_request(make_request(f"p{index}", prompt_len=40, max_tokens=1))
    assert all("d" not in step(scheduler).num_tokens for _ in range(150))
    assert step(scheduler).num_tokens == {"d": 1}


def test_the_bound_hides_a_prompt_between_its_chunks() -> None:
    scheduler = make_neuron(max_consecutive_prefills=2)
    scheduler.add_request(make_request("d", max_tokens=20))
    step(scheduler)
    add_requests(scheduler, make_request("p", prompt_len=60), make_request("q"))
    steps = [step(scheduler).num_tokens for _ in range(6)]
    assert steps == [{"p": 16}, {"p": 16}, {"d": 1}, {"p": 16}, {"p": 12}, {"d": 1, "p": 1}]
    assert scheduler.last_stats and scheduler.last_stats.hold_reason is HoldReason.STREAK
    assert [r.request_id for r in scheduler.running] == ["d", "p"]
    assert step(scheduler).num_tokens == {"q": 5}


def test_prompts_without_a_decode_that_waits_are_not_counted() -> None:
    scheduler = make_neuron(max_consecutive_prefills=1)
    scheduler.add_request(make_request("p", prompt_len=60))
    steps = [step(scheduler).num_tokens for _ in range(5)]
    assert steps == [{"p": 16}, {"p": 16}, {"p": 16}, {"p": 12}, {"p": 1}]


def test_a_long_prompt_before_short_ones_is_finished_first() -> None:
    scheduler = make_neuron()
    add_requests(
        scheduler,
        make_request("long", prompt_len=40),
        *(make_request(f"short{i}", prompt_len=4) for i in range(3)),
    )
    order = [next(iter(step(scheduler).num_tokens)) for _ in range(6)]
    assert order == ["long", "long", "long", "short0", "short1", "short2"]


def test_oversubscription_keeps_the_batch_full() -> None:
    scheduler = make_neuron(max_num_seqs=4, num_blocks=257)
    add_requests(scheduler, *(make_request(f"r{i}", max_tokens=17) for i in range(16)))
    steps = run_to_end(scheduler)
    num_decode_steps = sum(set(s.num_tokens.values()) == {1} for s in steps)
    ideal = 16 * 16 / 4
    assert num_decode_steps <= 1.1 * ideal


@EACH_CLASS
def test_min_tokens_outlasts_eos(scheduler_class: type[NeuronScheduler]) -> None:
    scheduler = make_scheduler(scheduler_class)
    request = make_request(max_tokens=9, min_tokens=5, eos_token_ids=frozenset({EOS_TOKEN_ID}))
    scheduler.add_request(request)
    assert ends(run_to_end(scheduler, token_id=EOS_TOKEN_ID)) == {"r0": "stop"}
    assert request.num_output_tokens == 5


def test_running_stays_in_the_order_of_admission() -> None:
    scheduler = make_neuron(max_num_seqs=3)
    requests = [make_request(f"r{i}", 20, max_tokens=3 + i) for i in range(6)]
    add_requests(scheduler, *requests)
    while has_anything_to_say(scheduler):
        step(scheduler)
        order = [requests.index(request) for request in scheduler.running]
        assert order == sorted(order)


def test_padding_totals_add_up_over_a_run() -> None:
    scheduler = make_neuron()
    add_requests(scheduler, *(make_request(f"r{i}", 3 + 7 * i) for i in range(4)))
    steps = run_to_end(scheduler)
    outputs = [s.scheduled for s in steps]
    real = sum(output.total_num_scheduled_tokens for output in outputs)
    padded = sum(sum((output.num_scheduled_tokens_padded or {}).values()) for output in outputs)
    assert scheduler.total_scheduled_tokens == real == sum(3 + 7 * i + 3 for i in range(4))
    assert scheduler.total_padding_tokens == padded - real == 5 + 6 + 7 + 0


def test_a_request_keeps_nothing_of_an_earlier_owner_of_its_id() -> None:
    scheduler = make_neuron()
    for _ in range(2):
        request = Request("same", [1, 2, 3], max_tokens=2)
        scheduler.add_request(request)
        run_to_end(scheduler)
        assert list(request.output_token_ids) == [7, 7]
