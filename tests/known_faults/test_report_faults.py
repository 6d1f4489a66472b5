"""Faults of reports: padding that nobody sees, a ladder that nobody can weigh, lengths unknown."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from conftest import Compiled
from scheduler_factory import add_requests, make_neuron, run_to_end

from neuron_llm import LLM, SamplingParams
from neuron_llm.report.advice.bucket_comparison import BucketComparison, Verdict
from neuron_llm.report.advice.prefill_score import score_prefill
from neuron_llm.report.run.bucket_range import bucket_ranges
from neuron_llm.report.run.padding import PaddingAccount, PaddingCounts
from neuron_llm.report.run.run_log_reader import RunLogReader
from neuron_llm.report.workload.length_histogram import LengthBin
from neuron_llm.report.workload.prefix_hits import computed_after_hits
from neuron_llm.report.workload.trace import Trace
from neuron_llm.report.workload.trace_reader import read_trace
from neuron_llm.runtime.run_log import RunHeader, RunLogWriter
from neuron_llm.scheduler import BucketSet, PrefillBucket, Request
from neuron_llm.scheduler.buckets import get_default_num_batched_tokens_buckets

BLOCK_SIZE = 4
LADDERS = {
    "powers of two": (4, 8, 16),
    "every length": tuple(range(1, 17)),
    "one graph": (16,),
    "fitted": (5, 11, 16),
}


def random_prompts(num_prompts: int, longest: int) -> list[list[int]]:
    """Return prompts of any lengths, two of three of them beginnings of one text."""
    rng = random.Random(0)
    text = [rng.randrange(3, 250) for _ in range(longest)]
    prompts = []
    for index in range(num_prompts):
        own = [rng.randrange(3, 250) for _ in range(longest)]
        prompts.append((text if index % 3 else own)[: rng.randint(1, longest)])
    return prompts


def write_trace(path: Path, prompts: list[list[int]]) -> Trace:
    """Write what a log of the prompts' server would say, and read it as a trace."""
    ids: dict[tuple[int, ...], int] = {}
    lines = []
    for index, prompt in enumerate(prompts):
        ends = range(BLOCK_SIZE, len(prompt) + BLOCK_SIZE, BLOCK_SIZE)
        hash_ids = [ids.setdefault(tuple(prompt[:end]), len(ids)) for end in ends]
        row = {"arrival_s": index, "prompt_tokens": len(prompt), "output_tokens": 2}
        lines.append(json.dumps({**row, "hash_ids": hash_ids, "block_size": BLOCK_SIZE}))
    path.write_text("\n".join(lines))
    return read_trace(path)


@pytest.fixture
def logged(
    llama: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[PrefillBucket, PaddingCounts]:
    """The prefill steps of a real run, by bucket, as its log has them, without their times."""
    llm = LLM(llama.artifact)
    buckets = llm.engine.artifact.manifest.buckets
    artifact_id = llm.engine.artifact.manifest.artifact_id
    path = tmp_path / "run" / "last_run.jsonl"
    with RunLogWriter(path, RunHeader(artifact_id, "2024-05-10T00:00:00+00:00")) as log:
        monkeypatch.setattr(llm.engine, "on_step", log.write)
        answers = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        llm.generate(random_prompts(6, 30), answers)
    account = PaddingAccount(buckets.all)
    with RunLogReader(path, artifact_id, buckets.all) as steps:
        for step in steps:
            account.add(step)
    for counts in account.by_bucket.values():
        counts.seconds = 0.0
    return {b: c for b, c in account.by_bucket.items() if isinstance(b, PrefillBucket)}


def test_what_padding_costs_is_said_per_bucket_and_agrees_with_the_log_of_a_run(
    logged: dict[PrefillBucket, PaddingCounts], tmp_path: Path
) -> None:
    """The fault: few graphs with half the work padding, or thousands; nobody sees which."""
    trace = write_trace(tmp_path / "trace.jsonl", random_prompts(6, 30))
    work = computed_after_hits(trace, block_size=BLOCK_SIZE)
    sizes = [bucket.num_tokens for bucket in logged]
    score = score_prefill(work.lengths, sizes, work.cached_tokens)
    assert score.by_bucket == logged
    assert score.total.num_cached_tokens > 0
    assert all(counts.num_uses for counts in logged.values())
    ranges = bucket_ranges(BucketSet(prefill=tuple(logged), decode=()))
    for bucket, counts in score.by_bucket.items():
        computed = counts.num_real_tokens + counts.num_padded_tokens
        assert computed == counts.num_uses * bucket.num_tokens
        assert counts.num_padded_tokens <= ranges[bucket].worst_padding_ratio * computed


def padded_by_scheduler(prompts: list[list[int]], buckets: tuple[int, ...]) -> tuple[int, int]:
    """Return the prefill steps and the padding of a run of the scheduler under a ladder."""
    scheduler = make_neuron(num_batched_tokens_buckets=buckets, enable_prefix_caching=False)
    requests = [Request(f"r{index}", prompt, 1) for index, prompt in enumerate(prompts)]
    add_requests(scheduler, *requests)
    steps = [s.scheduled for s in run_to_end(scheduler) if s.num_tokens]
    padded = [sum((s.num_scheduled_tokens_padded or {}).values()) for s in steps]
    real = [s.total_num_scheduled_tokens for s in steps]
    return len(steps), sum(padded) - sum(real)


@pytest.mark.parametrize("ladder", LADDERS.values(), ids=list(LADDERS))
def test_another_ladder_is_weighed_from_the_same_trace_as_a_run_would(
    tmp_path: Path, ladder: tuple[int, ...]
) -> None:
    """The fault: powers of two waste large steps, and what else would waste is a guess."""
    prompts = random_prompts(40, 60)
    lengths = write_trace(tmp_path / "trace.jsonl", prompts).prompt_lengths
    score = score_prefill(lengths, ladder)
    expected = padded_by_scheduler(prompts, ladder)
    assert (score.total.num_uses, score.num_padded_tokens) == expected


def test_a_ladder_that_wastes_more_is_never_said_to_save(tmp_path: Path) -> None:
    """The fault: a list is praised for its few graphs while it computes more padding."""
    lengths = write_trace(tmp_path / "trace.jsonl", random_prompts(40, 60)).prompt_lengths
    scores = {name: score_prefill(lengths, ladder) for name, ladder in LADDERS.items()}
    for reference in scores.values():
        for candidate in scores.values():
            comparison = BucketComparison(reference, candidate)
            is_less = candidate.num_padded_tokens < reference.num_padded_tokens
            assert (comparison.saved_share is not None) == is_less
            assert (comparison.verdict is Verdict.LESS_PADDING) == is_less


def test_lengths_of_prompts_and_of_whole_requests_are_counted_for_the_next_size(
    tmp_path: Path,
) -> None:
    """The fault: whoever resizes a deployment does not know how long its requests are."""
    path = tmp_path / "trace.csv"
    rows = ["0,100,28", "1,129,900", "2,700,", "3,128,1", "4,3000,50"]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows))
    trace = read_trace(path)
    edges = get_default_num_batched_tokens_buckets(1024)
    assert trace.prompt_lengths.bins(edges) == [
        LengthBin(1, 128, 2),
        LengthBin(129, 256, 1),
        LengthBin(257, 512, 0),
        LengthBin(513, 1024, 1),
        LengthBin(1025, 3000, 1),
    ]
    # The answer of 700 tokens' prompt is not known, so neither is that request's length.
    assert trace.total_lengths.counts == {128: 1, 129: 1, 1029: 1, 3050: 1}
    assert trace.prompt_lengths.to_json() == {
        "num_lengths": 5,
        "num_tokens": 4057,
        "p50_tokens": 129,
        "p90_tokens": 3000,
        "p99_tokens": 3000,
        "max_tokens": 3000,
    }
