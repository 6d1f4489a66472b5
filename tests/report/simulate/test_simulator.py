"""Simulations whose clocks can be followed by hand, and what holds of any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_traces import MOONCAKE, needs_traces, real_trace
from simulation_factory import TokenTimes, make_buckets, make_candidate, make_trace, run_steps

from neuron_llm.errors import ConfigError, NeuronLLMError, NoBucketError
from neuron_llm.report.advice.prefill_score import score_prefill
from neuron_llm.report.run.padding import PaddingAccount
from neuron_llm.report.simulate.simulator import simulate
from neuron_llm.report.step_time.step_times import StepTime
from neuron_llm.report.workload.prefix_hits import computed_after_hits
from neuron_llm.report.workload.workload import Workload
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket


def latency(result: Any, name: str) -> tuple[float, float]:
    """Return the median and the greatest of a latency in seconds."""
    values = result.to_json()[name]
    return values["p50"] / 1e3, values["max"] / 1e3


def names(steps: list[Any]) -> list[str]:
    return [step.bucket.name for step in steps]


def test_one_request_takes_its_prefill_and_a_decode_for_each_further_token() -> None:
    result, steps = run_steps(make_trace((0.0, 5, 3)))
    # 8 tokens take 2 s; a row takes 9/16 s.
    assert names(steps) == ["prefill_t8", "decode_b1_c64", "decode_b1_c64"]
    assert [(step.num_tokens, step.num_context_tokens) for step in steps] == [
        (5, 5),
        (1, 6),
        (1, 7),
    ]
    assert latency(result, "ttft_ms") == (2.0, 2.0)
    assert latency(result, "tpot_ms") == (0.5625, 0.5625)
    assert latency(result, "itl_ms") == (0.5625, 0.5625)
    assert latency(result, "e2el_ms") == (3.125, 3.125)
    assert result.duration_s == 3.125
    assert result.longest_stall is None


def test_two_requests_by_hand() -> None:
    """The second comes during the first one's first decode, and has to wait for its end.

    0      2       2.5625   5.5625        6.1875        6.75
    |A t8  |A b1   |B t16   |A, B b2      |B b1         |
    """
    result, steps = run_steps(make_trace((0.0, 8, 3), (2.25, 9, 3)))
    assert names(steps) == [
        "prefill_t8",
        "decode_b1_c64",
        "prefill_t16",
        "decode_b2_c64",
        "decode_b1_c64",
    ]
    report = result.to_json()
    # A: 2. B: 5.5625 - 2.25.
    assert latency(result, "ttft_ms") == ((2 + 3.3125) / 2, 3.3125)
    # A's tokens come at 2, 2.5625 and 6.1875; B's at 5.5625, 6.1875 and 6.75.
    assert latency(result, "itl_ms") == ((0.5625 + 0.625) / 2, 3.625)
    assert latency(result, "tpot_ms") == ((4.1875 / 2 + 1.1875 / 2) / 2, 4.1875 / 2)
    assert latency(result, "e2el_ms") == ((6.1875 + 4.5) / 2, 6.1875)
    assert latency(result, "queue_ms") == (0.3125 / 2, 0.3125)
    assert result.duration_s == 6.75
    assert report["requests_per_s"] == 2 / 6.75
    assert report["output_tokens_per_s"] == 6 / 6.75
    assert report["total_tokens_per_s"] == (6 + 17) / 6.75
    stall = result.longest_stall
    assert stall is not None
    assert (stall.started_s, stall.seconds, stall.num_prefills, stall.num_seqs) == (2.5625, 3, 1, 1)


def test_a_queue_time_is_that_until_the_first_step_begins() -> None:
    result, _ = run_steps(make_trace((0.0, 8, 1), (0.0, 8, 1), (0.5, 8, 1)))
    # They begin at 0, 2 and 4.
    assert latency(result, "queue_ms") == (2.0, 3.5)
    assert latency(result, "ttft_ms") == (4.0, 5.5)


def test_a_long_prompt_stalls_decodes_chunk_by_chunk() -> None:
    result, steps = run_steps(make_trace((0.0, 4, 3), (0.0, 40, 2)))
    # The first one waits from its first token at 2 for chunks of 16, 16 and 8.
    assert names(steps)[:4] == ["prefill_t8", "prefill_t16", "prefill_t16", "prefill_t8"]
    stall = result.longest_stall
    assert stall is not None
    assert (stall.started_s, stall.seconds, stall.num_prefills, stall.num_seqs) == (2.0, 8.0, 3, 1)
    assert latency(result, "itl_ms")[1] == 8.625


def test_a_bound_on_prefills_in_a_row_bounds_the_stall() -> None:
    trace = make_trace((0.0, 4, 9), (0.0, 40, 2))
    result, _ = run_steps(trace, make_candidate(max_consecutive_prefills=1))
    assert result.longest_stall is not None
    assert (result.longest_stall.seconds, result.longest_stall.num_prefills) == (3.0, 1)


def test_nothing_runs_until_the_next_request_comes() -> None:
    result, _ = run_steps(make_trace((0.0, 8, 1), (100.0, 8, 1)))
    assert result.duration_s == 102.0
    assert result.account.total.seconds == 4.0
    assert latency(result, "queue_ms") == (0.0, 0.0)
    assert result.timeline.total.mean.num_running == pytest.approx(4 / 102)


def test_a_request_that_comes_as_a_step_ends_is_in_time_for_the_next() -> None:
    _, steps = run_steps(make_trace((0.0, 8, 5), (2.0, 8, 1)))
    assert names(steps)[:2] == ["prefill_t8", "prefill_t8"]


def test_an_output_ends_where_the_context_does() -> None:
    result, steps = run_steps(make_trace((0.0, 60, 100), (0.0, 3, 2)))
    assert result.num_cut_outputs == 1
    assert result.metrics.num_output_tokens == 4 + 2
    assert max(step.num_context_tokens for step in steps if step.num_seqs == 1) == 63


def test_a_request_without_output_gets_the_one_token_that_its_prompt_gives() -> None:
    result, steps = run_steps(make_trace((0.0, 8, 0)))
    assert names(steps) == ["prefill_t8"]
    assert result.metrics.num_output_tokens == 1
    assert result.to_json()["tpot_ms"]["p50"] is None


def test_requests_that_can_never_run_are_named_and_are_in_nothing_else() -> None:
    trace = make_trace((0.0, 64, 1), (0.0, 8, 1), (1.0, 30, 20), (1.0, 10**12, 1))
    result, steps = run_steps(trace, make_candidate(num_blocks=11))
    assert [(refused.line, refused.code) for refused in result.refused] == [
        (2, "prompt_too_long"),
        (4, "kv_too_small"),
        (5, "prompt_too_long"),
    ]
    assert "needs 13 KV blocks and 10 are available" in result.refused[1].reason
    assert names(steps) == ["prefill_t8"]
    report = result.to_json()
    assert (report["num_completed"], report["num_refused"]) == (1, 3)
    assert report["refused"][2]["prompt_tokens"] == 10**12
    assert result.timeline.total.greatest.num_waiting == 0


def test_a_workload_of_refused_requests_takes_no_time() -> None:
    result, steps = run_steps(make_trace((3.0, 64, 1)))
    assert (steps, result.duration_s, result.num_steps) == ([], 0.0, 0)
    report = result.to_json()
    assert report["requests_per_s"] is None
    assert report["longest_stall"] is None
    assert report["max_used_kv_blocks"] == 0


def test_a_request_that_asks_for_more_than_it_generates_keeps_blocks_from_others() -> None:
    trace = make_trace((0.0, 8, 3), (0.0, 8, 3))
    candidate = make_candidate(num_blocks=11)
    exact, _ = run_steps(Workload(trace), candidate)
    asking, _ = run_steps(Workload(trace, max_tokens=24), candidate)
    # Ten blocks hold two requests of 10 tokens, and one of 31.
    assert exact.timeline.total.greatest.num_running == 2
    assert asking.timeline.total.greatest.num_running == 1
    assert exact.metrics.num_output_tokens == asking.metrics.num_output_tokens == 6
    assert asking.duration_s == 2 * (2 + 2 * 0.5625)


def test_equal_hash_ids_are_found_in_the_prefix_cache() -> None:
    trace = make_trace(
        (0.0, 12, 1), (0.0, 12, 1), (0.0, 12, 1), hash_ids=[(1, 2, 3), (1, 2, 3), (1, 5, 3)]
    )
    result, steps = run_steps(trace)
    assert result.is_prefix_caching
    # The last token of a prompt is always computed, so that the third block is.
    assert [step.num_cached_tokens for step in steps] == [0, 8, 4]
    assert [step.num_tokens for step in steps] == [12, 4, 8]
    assert result.account.total.num_cached_tokens == 12
    assert result.metrics.num_cached_tokens == 12


@pytest.mark.parametrize("has_ids", [False, True])
def test_nothing_is_found_where_nothing_is_shared_or_caching_is_off(has_ids: bool) -> None:
    ids = [(1, 2), (1, 2)] if has_ids else []
    trace = make_trace((0.0, 8, 2), (0.0, 8, 2), hash_ids=ids)
    result, _ = run_steps(trace, make_candidate(enable_prefix_caching=not has_ids))
    assert not result.is_prefix_caching
    assert result.metrics.num_cached_tokens == 0


def test_an_assumed_output_is_counted() -> None:
    result, _ = run_steps(Workload(make_trace((0.0, 8, None), (0.0, 8, 2)), 7))
    assert result.num_assumed_outputs == 1
    assert result.metrics.num_output_tokens == 9


def test_the_occupancy_counts_decodes_by_rows_and_context() -> None:
    result, _ = run_steps(make_trace((0.0, 8, 3), (0.0, 8, 2)))
    assert result.occupancy.counts == {(2, 128): 1, (1, 128): 1}


def test_kv_blocks_and_queues_over_time() -> None:
    trace = make_trace((0.0, 8, 1), (0.0, 8, 1), (0.0, 8, 1))
    result, _ = run_steps(trace)
    first, second, third = result.timeline.bins(3)
    assert [b.mean.num_waiting for b in (first, second, third)] == [2.0, 1.0, 0.0]
    assert {b.greatest.num_used_blocks for b in (first, second, third)} == {2}
    report = result.to_json()
    assert (report["num_kv_blocks"], report["max_used_kv_blocks"]) == (64, 2)


def test_requests_outside_the_scheduler_wait_too() -> None:
    result, _ = run_steps(make_trace(*[(0.0, 8, 1)] * 10))
    assert result.timeline.total.greatest.num_waiting == 9


def test_estimated_graphs_that_ran_are_named() -> None:
    result, _ = run_steps(make_trace((0.0, 8, 2)))
    assert result.estimated == (DecodeBucket(1, 64),)
    sources = {entry["graph"]: entry["source"] for entry in result.to_json()["step_times"]}
    assert sources["prefill_t8"] == "measured"
    assert sources["decode_b4_c64"] == "estimated"


def test_a_larger_graph_takes_fewer_steps() -> None:
    workload = Workload(make_trace((0.0, 40, 2)))
    small = make_candidate(make_buckets(prefill=(8,)))
    large = make_candidate(make_buckets(prefill=(64,)))
    results = [simulate(workload, candidate, TokenTimes()) for candidate in (small, large)]
    assert [result.num_steps for result in results] == [6, 2]
    assert [result.candidate for result in results] == [small, large]


def test_a_step_without_a_graph_is_an_error() -> None:
    candidate = make_candidate(make_buckets(seqs=(1,)))
    with pytest.raises(NoBucketError, match="no bucket holds 2"):
        run_steps(make_trace((0.0, 8, 4), (0.0, 8, 4)), candidate)


def test_a_cache_too_small_for_the_admission_rule_is_an_error() -> None:
    candidate = make_candidate(num_blocks=9, kv_admission="max_model_len")
    with pytest.raises(ConfigError, match="holds no request"):
        run_steps(make_trace((0.0, 8, 4)), candidate)


def test_an_unknown_step_time_is_an_error_before_anything_runs() -> None:
    class NoDecodes(TokenTimes):
        def step_time(self, bucket: Bucket) -> StepTime:
            if isinstance(bucket, DecodeBucket):
                raise NeuronLLMError("nobody knows")
            return super().step_time(bucket)

    with pytest.raises(NeuronLLMError, match="nobody knows"):
        simulate(Workload(make_trace((0.0, 8, 1))), make_candidate(), NoDecodes())


def test_an_async_step_is_scheduled_when_the_one_before_begins() -> None:
    """The second request comes during the prefill: the decode that follows is scheduled by then.

    0      2       2.5625  4.5625
    |A t8  |A b1   |B t8   |A b1 ...
    """
    trace = make_trace((0.0, 8, 3), (1.0, 8, 1))
    result, steps = run_steps(trace, make_candidate(async_scheduling=True))
    assert names(steps) == ["prefill_t8", "decode_b1_c64", "prefill_t8", "decode_b1_c64"]
    assert latency(result, "queue_ms") == (1.5625 / 2, 1.5625)
    _, steps = run_steps(trace)
    assert names(steps) == ["prefill_t8", "prefill_t8", "decode_b1_c64", "decode_b1_c64"]


def test_an_async_step_computes_a_row_in_vain_where_an_end_is_found_late() -> None:
    trace = make_trace((0.0, 8, 2))
    _, steps = run_steps(Workload(trace, max_tokens=9), make_candidate(async_scheduling=True))
    assert names(steps) == ["prefill_t8", "decode_b1_c64", "decode_b1_c64"]
    _, steps = run_steps(Workload(trace), make_candidate(async_scheduling=True))
    assert names(steps) == ["prefill_t8", "decode_b1_c64"]


@needs_traces
def test_one_at_a_time_a_real_trace_hits_what_its_prefixes_say() -> None:
    whole = real_trace(MOONCAKE)
    trace = replace(whole, requests=tuple(replace(r, output_tokens=1) for r in whole.requests[:80]))
    sizes, longest = (512, 8192), 131072
    candidate = make_candidate(
        make_buckets(prefill=sizes, contexts=(longest,)),
        max_num_seqs=1,
        max_model_len=longest,
        block_size=512,
        num_blocks=10_000,
    )
    result, steps = run_steps(trace, candidate)
    work = computed_after_hits(trace, block_size=512)
    assert sum(work.num_cached_tokens) == result.metrics.num_cached_tokens > 0
    score = score_prefill(work.lengths, sizes, work.cached_tokens)
    for bucket, counts in score.by_bucket.items():
        assert replace(result.account.by_bucket[bucket], seconds=0.0) == counts
    assert len(steps) == score.total.num_uses


workloads = st.builds(
    lambda requests, max_tokens: Workload(make_trace(*sorted(requests)), max_tokens=max_tokens),
    st.lists(
        st.tuples(st.integers(0, 80).map(lambda n: n / 8), st.integers(1, 70), st.integers(0, 40)),
        min_size=1,
        max_size=12,
    ),
    st.none() | st.integers(1, 60),
)
candidates = st.builds(
    make_candidate,
    st.sampled_from([make_buckets(), make_buckets(prefill=(5, 24)), make_buckets(prefill=(64,))]),
    async_scheduling=st.booleans(),
    max_num_seqs=st.integers(1, 4),
    num_blocks=st.sampled_from([17, 20, 65]),
    max_consecutive_prefills=st.sampled_from([None, 1, 3]),
    kv_admission=st.sampled_from(["reserve", "max_model_len"]),
)


@given(workloads, candidates)
def test_every_token_is_given_and_every_step_is_counted(workload: Workload, candidate: Any) -> None:
    result, steps = run_steps(workload, candidate)
    refused = {request.line for request in result.refused}
    ran = [r for r in workload.trace.requests if r.line not in refused]
    assert result.metrics.num_completed == len(ran) == result.queue_ms.num_values
    outputs = [min(workload.output_tokens(r), 64 - r.prompt_tokens) for r in ran]
    assert result.metrics.num_output_tokens == sum(outputs)
    account = PaddingAccount(candidate.buckets.all)
    for step in steps:
        account.add(step)
    assert account.to_json() == result.account.to_json()
    real, total = sum(step.num_tokens for step in steps), result.account.total
    assert total.num_real_tokens == real
    num_wanted = sum(r.prompt_tokens for r in ran) + sum(outputs) - len(ran)
    # An end that asynchronous scheduling finds late costs a row of one step.
    num_late = sum(r.prompt_tokens < 63 for r in ran) if candidate.async_scheduling else 0
    assert num_wanted <= real <= num_wanted + num_late
    assert total.num_padded_tokens == sum(_size(step.bucket) for step in steps) - real
    idle = result.duration_s - total.seconds
    assert 0 <= idle <= max((r.arrival_s for r in ran), default=0)


@given(workloads, candidates)
def test_the_same_arguments_give_the_same_result(workload: Workload, candidate: Any) -> None:
    first, steps = run_steps(workload, candidate)
    second, again = run_steps(workload, candidate)
    assert steps == again
    assert first.to_json() == second.to_json()
    assert first.timeline.bins(7) == second.timeline.bins(7)


def _size(bucket: Bucket) -> int:
    return bucket.num_tokens if isinstance(bucket, PrefillBucket) else bucket.batch_size
