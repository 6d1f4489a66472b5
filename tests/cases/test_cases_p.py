"""Faults of prefix caching: a hit that differs from a miss, and a pad block that is found."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from conftest import Compiled
from tiny_models import random_prompt

from neuron_llm import LLM, SamplingParams
from neuron_llm.runtime.outputs import RequestOutput
from neuron_llm.scheduler.block_pool import NULL_BLOCK_ID

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def loaded(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture
def llm(loaded: LLM) -> Iterator[LLM]:
    """The model with an empty prefix cache."""
    assert loaded.engine.scheduler.reset_prefix_cache()
    yield loaded


def tokens_of(outputs: list[RequestOutput]) -> list[tuple[int, ...]]:
    return [tuple(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_a_hit_answers_like_a_miss_in_every_row_bucket(llm: LLM, num_rows: int) -> None:
    """The fault: the path of a hit is wrong, always, or only for some size of a batch."""
    lengths = list(range(1, 33))
    for first in range(0, len(lengths), num_rows):
        prompts = [random_prompt(n, seed=n) for n in lengths[first : first + num_rows]]
        cold = llm.generate(prompts, GREEDY)
        warm = llm.generate(prompts, GREEDY)
        assert [output.num_cached_tokens for output in cold] == [0] * num_rows
        assert [output.num_cached_tokens for output in warm] == [
            (len(prompt) - 1) // 4 * 4 for prompt in prompts
        ]
        assert tokens_of(cold) == tokens_of(warm), [len(prompt) for prompt in prompts]


def test_no_padding_reaches_a_block_that_is_served_again(llm: LLM) -> None:
    """The fault: the block that takes the writes of padding is later found in the cache."""
    session = llm.engine.runner.session
    pool = llm.engine.scheduler.kv_cache_manager.block_pool
    cached = [random_prompt(17, seed=n) for n in range(3)]
    cold = llm.generate(cached, GREEDY)
    for cache in (*session.key_caches, *session.value_caches):
        cache[NULL_BLOCK_ID].fill_(math.nan)
    # Three rows in the graph of four, prompts of five tokens in the graph of eight.
    llm.generate([random_prompt(5, seed=50 + n) for n in range(3)], GREEDY)
    warm = llm.generate(cached, GREEDY)
    assert [output.num_cached_tokens for output in warm] == [16] * 3
    assert tokens_of(cold) == tokens_of(warm)
    assert pool.block_hash(NULL_BLOCK_ID) is None
    assert NULL_BLOCK_ID not in pool.free_block_ids
    for cache in (*session.key_caches, *session.value_caches):
        cache[NULL_BLOCK_ID].fill_(0)
