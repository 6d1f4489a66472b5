"""The fault: log probabilities of a prompt that the prefix cache holds end in an assertion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Compiled
from tiny_models import random_prompt

from neuron_llm import LLM, SamplingParams

SCORED = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, prompt_logprobs=2)
PLAIN = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.fixture(scope="module")
def loaded(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture
def llm(loaded: LLM) -> Iterator[LLM]:
    """The model with an empty prefix cache, in blocks of 4 tokens."""
    assert loaded.engine.scheduler.reset_prefix_cache()
    yield loaded


@pytest.mark.parametrize("length", [3, 4, 5, 8, 17, 20, 33])
def test_the_second_time_gives_the_same_values(llm: LLM, length: int) -> None:
    prompt = random_prompt(length, seed=length)
    first = llm.generate([prompt], SCORED)[0]
    second = llm.generate([prompt], SCORED)[0]
    assert first.prompt_logprobs is not None and len(first.prompt_logprobs) == length
    assert second.prompt_logprobs == first.prompt_logprobs
    assert second.outputs == first.outputs
    # The cache is passed over, since what it holds has no logits.
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 0)


@pytest.mark.parametrize("length", [4, 8, 17, 33])
def test_a_prompt_that_others_have_left_in_the_cache_is_scored_whole(llm: LLM, length: int) -> None:
    prompt = random_prompt(length, seed=length)
    cold = llm.generate([prompt], SCORED)[0]
    assert llm.engine.scheduler.reset_prefix_cache()
    llm.generate([prompt], PLAIN)
    warm = llm.generate([prompt], SCORED)[0]
    assert warm.num_cached_tokens == 0
    assert warm.prompt_logprobs == cold.prompt_logprobs


def test_blocks_of_a_scored_prompt_are_served_to_others(llm: LLM) -> None:
    prompt = random_prompt(18, seed=1)
    plain = llm.generate([prompt], PLAIN)[0]
    assert llm.engine.scheduler.reset_prefix_cache()
    llm.generate([prompt], SCORED)
    warm = llm.generate([prompt], PLAIN)[0]
    assert warm.num_cached_tokens == 16
    assert warm.outputs[0].token_ids == plain.outputs[0].token_ids


def test_both_at_once_give_the_same_values(llm: LLM) -> None:
    prompt = random_prompt(21, seed=2)
    alone = llm.generate([prompt], SCORED)[0]
    together = llm.generate([prompt] * 3, [SCORED, PLAIN, SCORED])
    assert [one.prompt_logprobs for one in together] == [
        alone.prompt_logprobs, None, alone.prompt_logprobs,
    ]  # fmt: skip
    assert len({one.outputs[0].token_ids for one in together}) == 1
    kv = llm.engine.scheduler.kv_cache_manager
    kv.check_integrity()
    assert kv.num_free_blocks == kv.block_pool.num_usable_blocks
