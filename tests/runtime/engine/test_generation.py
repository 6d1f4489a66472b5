"""Greedy generation through compiled graphs equals eager Hugging Face, token for token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from conftest import Compiled
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams

NUM_TOKENS = 10
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)


def generated(llm: LLM, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(o.outputs[0].token_ids) for o in llm.generate(list(prompts), GREEDY)]


class Case:
    """A compiled model beside its reference."""

    def __init__(self, compiled: Compiled, largest_bucket: int) -> None:
        self.llm = LLM(compiled.artifact)
        self.reference: Any = load_reference(compiled.model)
        self.prompts = [random_prompt(n, seed=n) for n in range(1, 2 * largest_bucket + 1)]
        self.expected = [reference_tokens(self.reference, p, NUM_TOKENS) for p in self.prompts]


@pytest.fixture(scope="module")
def llama_case(llama: Compiled) -> Iterator[Case]:
    yield Case(llama, largest_bucket=16)


@pytest.fixture(scope="module")
def qwen3_case(qwen3: Compiled) -> Iterator[Case]:
    yield Case(qwen3, largest_bucket=32)


@pytest.fixture(params=["llama_case", "qwen3_case"])
def case(request: pytest.FixtureRequest) -> Case:
    value: Case = request.getfixturevalue(request.param)
    return value


def test_reference_outputs_are_diverse(case: Case) -> None:
    assert len({tuple(tokens) for tokens in case.expected}) > 0.9 * len(case.expected)
    assert len({token for tokens in case.expected for token in tokens}) > 64


def test_every_prompt_length_equals_eager_one_at_a_time(case: Case) -> None:
    for prompt, expected in zip(case.prompts, case.expected, strict=True):
        assert generated(case.llm, [prompt]) == [expected], len(prompt)


def test_every_prompt_length_equals_eager_all_at_once(case: Case) -> None:
    assert generated(case.llm, case.prompts) == case.expected


def test_a_warm_prefix_cache_changes_nothing(case: Case) -> None:
    cold = case.llm.generate([case.prompts[-1]], GREEDY)[0]
    warm = case.llm.generate([case.prompts[-1]], GREEDY)[0]
    assert warm.num_cached_tokens > 0
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids
    assert list(warm.outputs[0].token_ids) == case.expected[-1]


def test_all_blocks_are_free_when_nothing_runs(case: Case) -> None:
    generated(case.llm, case.prompts[:5])
    kv = case.llm.engine.scheduler.kv_cache_manager
    assert kv.num_free_blocks == case.llm.engine.artifact.manifest.settings.num_blocks - 1
