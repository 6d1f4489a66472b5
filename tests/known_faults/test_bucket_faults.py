"""Faults of bucketed systems: shapes that nobody compiled, and buckets that nobody needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_factory import plan
from conftest import Compiled
from scheduler_factory import add_requests, make_request, make_scheduler, run_to_end
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.scheduler import NeuronScheduler
from neuron_llm.scheduler.buckets import DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord


@pytest.mark.parametrize(("budget", "buckets"), [(13, [13]), (200, [128, 200])])
def test_a_budget_off_the_grid_runs_only_shapes_that_are_compiled(
    tmp_path: Path, budget: int, buckets: list[int]
) -> None:
    """The fault: a budget between two sizes is padded to a larger one without a graph."""
    planned = plan(tmp_path, f"max_model_len: 300\nmax_num_batched_tokens: {budget}\n")
    assert planned.buckets.num_batched_tokens_buckets == buckets
    scheduler = make_scheduler(
        NeuronScheduler,
        max_model_len=planned.max_model_len,
        max_num_batched_tokens=planned.max_num_batched_tokens,
        num_batched_tokens_buckets=tuple(buckets),
        num_blocks=400,
    )
    # One token each: every step is a prefill.
    add_requests(scheduler, *(make_request(f"r{n}", n, max_tokens=1) for n in range(1, 300, 6)))
    padded = [step.scheduled.num_scheduled_tokens_padded or {} for step in run_to_end(scheduler)]
    sizes = {PrefillBucket(size) for step in padded for size in step.values()}
    assert sizes == set(planned.buckets.prefill)


@pytest.mark.parametrize("num_blocks", [11, 12, 21, 41])
@pytest.mark.parametrize("kv_admission", ["reserve", "max_model_len"])
def test_no_needed_bucket_is_left_out_and_no_kept_one_is_idle(
    tmp_path: Path, num_blocks: int, kv_admission: str
) -> None:
    """The fault: a filter of unreachable buckets that takes reachable ones with it."""
    planned = plan(
        tmp_path,
        f"max_model_len: 160\nblock_size: 16\nmax_num_seqs: 6\nmax_num_batched_tokens: 40\n"
        f"num_gpu_blocks_override: {num_blocks}\nkv_admission: {kv_admission}\nneuron_config:\n"
        "  num_batched_tokens_buckets: [8, 24, 40]\n  decode_context_length_buckets: [128]\n",
    )
    buckets, shapes = planned.buckets, planned.shapes
    used: set[PrefillBucket | DecodeBucket] = set()
    for num_tokens in range(1, shapes.max_chunk_tokens + 1):
        picked = buckets.pick_prefill_bucket(num_tokens)
        assert picked.num_tokens == min(n for n in (8, 24, 40) if n >= num_tokens)
        used.add(picked)
    for num_seqs in range(1, shapes.max_decode_seqs + 1):
        for context in range(1, shapes.max_context_tokens + 1):
            row = buckets.pick_decode_bucket(num_seqs, context)
            assert row.batch_size == min(n for n in (1, 2, 4, 6) if n >= num_seqs)
            assert row.max_context_tokens == (128 if context <= 128 else 160)
            used.add(row)
    assert used == set(buckets.all)
    dropped = {unreachable.bucket for unreachable in planned.unreachable}
    assert dropped.isdisjoint(used)
    assert {b.batch_size for b in dropped | used if isinstance(b, DecodeBucket)} == {1, 2, 4, 6}


def test_a_batch_that_fills_the_context_ends_without_a_position_past_it(llama: Compiled) -> None:
    """The fault: at exactly `max_model_len` an index lies one past the end."""
    llm = LLM(llama.artifact)
    steps: list[StepRecord] = []
    llm.engine.on_step = steps.append
    prompts = [random_prompt(length, seed=length) for length in (59, 60, 61, 62)]
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    outputs = [output.outputs[0] for output in llm.generate(prompts, params)]
    reference = load_reference(llama.model)
    assert [list(output.token_ids) for output in outputs] == [
        reference_tokens(reference, prompt, 64 - len(prompt)) for prompt in prompts
    ]
    assert {output.finish_reason for output in outputs} == {"length"}
    # The largest decode graph took part in it.
    assert DecodeBucket(4, 64) in {step.bucket for step in steps}
