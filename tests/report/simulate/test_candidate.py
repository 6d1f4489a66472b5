"""Candidates: from a plan, and with other graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_factory import plan
from simulation_factory import make_buckets, make_candidate

from neuron_llm.errors import ConfigError
from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.scheduler.config import SchedulerConfig


def test_a_compile_plan_is_a_candidate(tmp_path: Path) -> None:
    text = (
        "max_model_len: 300\nmax_num_seqs: 3\nmax_num_batched_tokens: 200\nblock_size: 16\n"
        "async_scheduling: true\nkv_admission: max_model_len\nmax_consecutive_prefills: 5\n"
        "neuron_config: {decode_context_length_buckets: [128]}\n"
    )
    planned = plan(tmp_path, text)
    candidate = Candidate.of("plan", planned, planned.buckets)
    assert candidate.async_scheduling
    assert candidate.buckets == make_buckets((128, 200), (1, 2, 3), (128, 300))
    assert candidate.scheduler == SchedulerConfig(
        max_num_seqs=3,
        max_num_batched_tokens=200,
        max_model_len=300,
        block_size=16,
        num_blocks=3 * 19 + 1,
        num_batched_tokens_buckets=(128, 200),
        kv_admission="max_model_len",
        max_consecutive_prefills=5,
    )


def test_other_prefill_buckets_bring_their_own_budget() -> None:
    old = make_candidate(async_scheduling=True, max_consecutive_prefills=3)
    new = old.with_buckets("new", num_batched_tokens_buckets=[4, 12, 32])
    assert new.buckets == make_buckets(prefill=(4, 12, 32))
    assert new.scheduler.max_num_batched_tokens == 32
    assert new.scheduler.num_batched_tokens_buckets == (4, 12, 32)
    assert (new.name, new.async_scheduling, new.scheduler.max_consecutive_prefills) == (
        "new",
        True,
        3,
    )
    assert new.scheduler.num_blocks == old.scheduler.num_blocks


def test_other_rows_bring_their_own_number_of_requests() -> None:
    old = make_candidate(make_buckets(contexts=(32, 64)))
    new = old.with_buckets("new", num_seqs_buckets=[3, 6])
    assert new.buckets == make_buckets(seqs=(3, 6), contexts=(32, 64))
    assert new.scheduler.max_num_seqs == 6


def test_other_contexts_end_in_the_longest() -> None:
    old = make_candidate(make_buckets(contexts=(32, 64)))
    assert old.with_buckets("a", decode_context_length_buckets=[16]).buckets == make_buckets(
        contexts=(16, 64)
    )
    assert old.with_buckets("b", decode_context_length_buckets=[]).buckets == make_buckets()


def test_what_is_not_named_stays() -> None:
    old = make_candidate()
    assert old.with_buckets("made up") == old


def test_a_chunk_above_the_longest_request_is_refused() -> None:
    with pytest.raises(ConfigError, match="largest chunk"):
        make_candidate().with_buckets("new", num_batched_tokens_buckets=[128])


def test_limits_and_graphs_must_agree() -> None:
    candidate = make_candidate()
    with pytest.raises(AssertionError):
        Candidate("wrong", candidate.scheduler, make_buckets(prefill=(16,)))
