"""Faults of prefix caching: a hit that differs from a miss, and a pad block that is found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import LLAMA_CONFIG, Compiled, compile_tiny
from engine_streams import async_copy
from tiny_models import LLAMA, load_reference, random_prompt, reference_tokens, save_model

from neuron_llm import LLM, SamplingParams
from neuron_llm.runtime.engine.outputs import RequestOutput
from neuron_llm.scheduler import DecodeBucket
from neuron_llm.scheduler.block_pool import NULL_BLOCK_ID, BlockPool, hash_block
from neuron_llm.scheduler.step_record import StepRecord

NUM_TOKENS = 6
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)


@pytest.fixture(scope="module", params=["sync", "async"])
def loaded(
    request: pytest.FixtureRequest, llama: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> LLM:
    if request.param == "sync":
        return LLM(llama.artifact)
    return LLM(async_copy(llama.artifact, tmp_path_factory.mktemp("async") / "tiny"))


@pytest.fixture
def llm(loaded: LLM) -> Iterator[LLM]:
    """The model with an empty prefix cache."""
    assert loaded.engine.scheduler.reset_prefix_cache()
    yield loaded
    fill(loaded, 0)


@pytest.fixture
def steps(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[StepRecord]:
    recorded: list[StepRecord] = []
    monkeypatch.setattr(llm.engine, "on_step", recorded.append)
    return recorded


@pytest.fixture(scope="module")
def expected(llama: Compiled) -> Callable[[list[int]], tuple[int, ...]]:
    """What eager Hugging Face answers to a prompt."""
    reference = load_reference(llama.model)
    return lambda prompt: tuple(reference_tokens(reference, prompt, NUM_TOKENS))


def caches_of(llm: LLM) -> tuple[torch.Tensor, ...]:
    session: Any = llm.engine.runner.session
    return (*session.key_caches, *session.value_caches)


def fill(llm: LLM, value: float) -> None:
    for cache in caches_of(llm):
        cache.fill_(value)


def published_blocks(pool: BlockPool, texts: list[list[int]]) -> set[int]:
    """Return the blocks in which the beginnings of the texts are found, in blocks of 4."""
    found = set()
    for text in texts:
        block_hash = None
        for start in range(0, len(text) - 3, 4):
            block_hash = hash_block(block_hash, text[start : start + 4])
            block_id = pool.get_cached_block(block_hash)
            if block_id is not None:
                found.add(block_id)
    return found


def tokens_of(outputs: list[RequestOutput]) -> list[tuple[int, ...]]:
    return [tuple(output.outputs[0].token_ids) for output in outputs]


def test_a_prompt_of_two_blocks_is_recomputed_from_its_second_each_time(
    llm: LLM, expected: Callable[[list[int]], tuple[int, ...]]
) -> None:
    """The fault: a hit on the whole prompt recomputes one token, and later hits go wrong."""
    prompt = random_prompt(8, seed=8)
    outputs = [llm.generate([prompt], GREEDY)[0] for _ in range(3)]
    assert [output.num_cached_tokens for output in outputs] == [0, 4, 4]
    assert tokens_of(outputs) == [expected(prompt)] * 3


def test_equal_prompts_at_once_never_read_a_block_that_is_not_written(
    llm: LLM, expected: Callable[[list[int]], tuple[int, ...]]
) -> None:
    """The fault: a block is found before it is computed, and its reader gets what was there."""
    for length in (8, 13, 21):
        assert llm.engine.scheduler.reset_prefix_cache()
        fill(llm, math.nan)
        prompt = random_prompt(length, seed=length)
        outputs = llm.generate([prompt] * 4, GREEDY)
        num_shared = (length - 1) // 4 * 4
        assert [output.num_cached_tokens for output in outputs] == [0] + [num_shared] * 3
        assert tokens_of(outputs) == [expected(prompt)] * 4


@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_a_hit_answers_like_a_miss_in_every_row_bucket(
    llm: LLM, steps: list[StepRecord], num_rows: int
) -> None:
    """The fault: the path of a hit is wrong, always, or only for some size of a batch."""
    lengths = list(range(1, 33))
    for first in range(0, len(lengths), num_rows):
        prompts = [random_prompt(n, seed=n) for n in lengths[first : first + num_rows]]
        cold = llm.generate(prompts, GREEDY)
        steps.clear()
        warm = llm.generate(prompts, GREEDY)
        assert DecodeBucket(num_rows, 64) in {step.bucket for step in steps}
        assert [output.num_cached_tokens for output in cold] == [0] * num_rows
        assert [output.num_cached_tokens for output in warm] == [
            (len(prompt) - 1) // 4 * 4 for prompt in prompts
        ]
        assert tokens_of(cold) == tokens_of(warm), [len(prompt) for prompt in prompts]


@pytest.mark.parametrize("max_num_seqs", [1, 2, 4])
def test_a_hit_answers_like_a_miss_for_every_limit_of_requests(
    llm: LLM,
    steps: list[StepRecord],
    expected: Callable[[list[int]], tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
    max_num_seqs: int,
) -> None:
    """The fault: prefix caching gives wrong answers where one request runs at a time."""
    scheduler = llm.engine.scheduler
    config = replace(scheduler.config, max_num_seqs=max_num_seqs)
    monkeypatch.setattr(llm.engine.requests, "scheduler", type(scheduler)(config))
    # They share their beginnings with each other, too.
    whole = random_prompt(30, seed=30)
    prompts = [whole[:length] for length in (30, 9, 17, 22, 30)]
    for _ in range(2):
        outputs = llm.generate(prompts, GREEDY)
        assert tokens_of(outputs) == [expected(prompt) for prompt in prompts]
        assert sum(output.num_cached_tokens for output in outputs) > 70
    decodes = {step.bucket for step in steps if isinstance(step.bucket, DecodeBucket)}
    assert max(decodes) == DecodeBucket(max_num_seqs, 64)


def test_chunks_that_are_cached_are_not_run(llm: LLM, steps: list[StepRecord]) -> None:
    """The fault: steps are scheduled, and graphs run, for text that is in the cache."""
    prompt = random_prompt(32, seed=32)
    llm.generate([prompt[:29]], GREEDY)
    steps.clear()
    (output,) = llm.generate([prompt], GREEDY)
    assert output.num_cached_tokens == 28
    prefills = [step for step in steps if not isinstance(step.bucket, DecodeBucket)]
    assert [(step.bucket.name, step.num_tokens) for step in prefills] == [("prefill_t8", 4)]


def test_no_padding_reaches_a_block_that_is_served_again(llm: LLM) -> None:
    """The fault: the block that takes the writes of padding is later found in the cache."""
    pool = llm.engine.scheduler.kv_cache_manager.block_pool
    # 24 + 6 tokens, 29 of them computed, leave 7 full blocks: 9 prompts leave 63 of 64.
    cached = [random_prompt(24, seed=n) for n in range(9)]
    cold = llm.generate(cached, GREEDY)
    texts = [prompt + list(answer) for prompt, answer in zip(cached, tokens_of(cold), strict=True)]
    published = published_blocks(pool, texts)
    # The last block, too: there a slot of -1 would write if it were taken for an index.
    assert len(published) == 63 and pool.num_blocks - 1 in published
    for cache in caches_of(llm):
        cache[NULL_BLOCK_ID].fill_(math.nan)
    before = [cache.clone() for cache in caches_of(llm)]
    # Three rows in the graph of four, prompts of five tokens in the graph of eight.
    llm.generate([random_prompt(5, seed=50 + n) for n in range(3)], GREEDY)
    kept = sorted(published_blocks(pool, texts))
    assert set(kept) < published
    assert len(kept) > 50 and pool.num_blocks - 1 in kept
    for cache, old in zip(caches_of(llm), before, strict=True):
        assert torch.equal(cache[kept], old[kept])
    warm = llm.generate(cached[-5:], GREEDY)
    assert [output.num_cached_tokens for output in warm] == [20] * 5
    assert tokens_of(cold[-5:]) == tokens_of(warm)
    # The null block is neither free nor published.
    pool.check_integrity()


def test_two_models_in_one_process_share_no_block(
    llama: Compiled, llm: LLM, compile_cache: Path, tmp_path: Path
) -> None:
    """The fault: the same text in another model is answered from this one's cache."""
    model = save_model(tmp_path / "other", LLAMA, seed=2)
    compiled = compile_tiny(model, LLAMA_CONFIG, compile_cache, tmp_path)
    other = LLM(compiled.artifact)
    prompt = random_prompt(21, seed=21)
    answers: dict[LLM, list[tuple[int, ...]]] = {llm: [], other: []}
    hits: dict[LLM, list[int]] = {llm: [], other: []}
    for _ in range(2):
        for one in (llm, other):
            (output,) = one.generate([prompt], GREEDY)
            answers[one] += tokens_of([output])
            hits[one].append(output.num_cached_tokens)
    assert hits == {llm: [0, 20], other: [0, 20]}
    for one, directory in ((llm, llama.model), (other, model)):
        alone = tuple(reference_tokens(load_reference(directory), prompt, NUM_TOKENS))
        assert answers[one] == [alone] * 2
    assert answers[llm] != answers[other]
