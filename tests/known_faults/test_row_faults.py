"""Faults of batches: rows that take part of each other's answers, and indices out of range."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import Compiled
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.backends.protocol import Session
from neuron_llm.errors import RequestError
from neuron_llm.scheduler.buckets import Bucket

BLOCK_SIZE, MAX_MODEL_LEN, NUM_TOKENS = 4, 64, 6
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture(autouse=True)
def cold(llm: LLM) -> None:
    llm.engine.scheduler.reset_prefix_cache()


@pytest.fixture(scope="module")
def reference(llama: Compiled) -> Any:
    return load_reference(llama.model)


def generated(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in llm.generate(prompts, GREEDY)]


class WatchedSession:
    """Runs another's graphs, and looks at what goes in and at what has been written."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.key_caches, self.value_caches = session.key_caches, session.value_caches
        self.num_calls = self.num_padded_rows = 0

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        num_blocks, block_size = self.key_caches[0].shape[:2]
        slots, tables = inputs.slot_mapping, inputs.block_tables
        assert tables.min() >= 0 and tables.max() < num_blocks
        assert slots.min() >= -1 and slots.max() < num_blocks * block_size
        # No real token goes to the null block.
        assert ((slots == -1) | (slots >= block_size)).all()
        self.num_calls += 1
        self.num_padded_rows += int((inputs.context_lens == 0).sum())
        before = [cache.clone() for cache in (*self.key_caches, *self.value_caches)]
        logits = self._session.execute(bucket, inputs)
        own = slots[slots >= 0].long()
        after = [cache.clone() for cache in (*self.key_caches, *self.value_caches)]
        for old, new in zip(before, after, strict=True):
            old.flatten(0, 1)[own] = 0
            new.flatten(0, 1)[own] = 0
            assert torch.equal(old, new), "a slot is written that is no token's of this step"
        return logits


@pytest.fixture
def watched(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedSession]:
    session = WatchedSession(llm.engine.runner.session)
    monkeypatch.setattr(llm.engine.runner, "session", session)
    yield session


def test_every_index_is_in_range_and_padding_writes_into_no_live_slot(
    llm: LLM, reference: Any, watched: WatchedSession
) -> None:
    """The fault: -1 in a block table reaches a gather as soon as lengths in a batch differ."""
    prompts = [random_prompt(n, seed=n) for n in (3, 17, 40)]
    expected = [reference_tokens(reference, prompt, NUM_TOKENS) for prompt in prompts]
    assert generated(llm, prompts) == expected
    assert watched.num_calls > 10 and watched.num_padded_rows > 0


@pytest.mark.parametrize("num_copies", [1, 2, 3, 4])
def test_copies_of_a_prompt_get_one_answer(llm: LLM, reference: Any, num_copies: int) -> None:
    """The fault: right in a batch of one or two, gibberish in a larger one."""
    prompt = random_prompt(11, seed=11)
    expected = reference_tokens(reference, prompt, NUM_TOKENS)
    assert generated(llm, [prompt] * num_copies) == [expected] * num_copies


@pytest.mark.parametrize("concurrency", [1, 2, 4])
def test_neither_order_nor_company_changes_an_answer(
    llm: LLM, reference: Any, concurrency: int
) -> None:
    """The fault: at temperature 0 an answer depends on what else is in the batch."""
    prompts = [random_prompt(1 + 3 * n, seed=n) for n in range(8)]
    expected = [reference_tokens(reference, prompt, NUM_TOKENS) for prompt in prompts]
    for seed in range(2):
        order = random.Random(seed).sample(range(len(prompts)), len(prompts))
        for first in range(0, len(order), concurrency):
            group = order[first : first + concurrency]
            assert generated(llm, [prompts[i] for i in group]) == [expected[i] for i in group]


def test_a_prompt_past_the_limit_is_refused_and_the_longest_is_answered(
    llm: LLM, reference: Any
) -> None:
    """The fault: a prompt above the limit is answered with garbage."""
    with pytest.raises(RequestError, match="64"):
        llm.generate([random_prompt(MAX_MODEL_LEN, seed=1)], GREEDY)
    prompt = random_prompt(MAX_MODEL_LEN - 1, seed=2)
    assert generated(llm, [prompt]) == [reference_tokens(reference, prompt, 1)]


def test_a_hit_beside_rows_without_one_gives_each_its_own_answer(llm: LLM, reference: Any) -> None:
    """The fault: rows without a hit get an empty block table when another row has one."""
    known = random_prompt(21, seed=21)
    generated(llm, [known])
    prompts = [random_prompt(6, seed=6), known, random_prompt(18, seed=18), known[:14]]
    outputs = llm.generate(prompts, GREEDY)
    assert [output.num_cached_tokens for output in outputs] == [0, 20, 0, 12]
    assert [list(output.outputs[0].token_ids) for output in outputs] == [
        reference_tokens(reference, prompt, NUM_TOKENS) for prompt in prompts
    ]
