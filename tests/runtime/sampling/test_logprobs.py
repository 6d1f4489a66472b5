"""Log probabilities of single positions, against log-softmax written by hand."""

from __future__ import annotations

import math

import pytest
import torch

from neuron_llm.runtime.sampling.logprobs import PromptScores, token_logprobs


def by_hand(logits: torch.Tensor) -> list[float]:
    values = logits.double().tolist()
    largest = max(values)
    total = math.log(sum(math.exp(value - largest) for value in values)) + largest
    return [value - total for value in values]


def random_logits(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, 50, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("num_logprobs", [0, 1, 5, 50, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_token_comes_first_and_then_the_most_likely_ones(
    num_logprobs: int, dtype: torch.dtype
) -> None:
    logits = random_logits(1)[0].to(dtype)
    expected = by_hand(logits)
    got = token_logprobs(logits, 7, num_logprobs)
    count = 50 if num_logprobs == -1 else num_logprobs
    assert len(got.token_ids) == count + 1 and got.token_ids[0] == 7
    assert got.logprobs == pytest.approx([expected[i] for i in got.token_ids], abs=1e-5)
    assert got.logprobs[1:] == pytest.approx(sorted(expected, reverse=True)[:count], abs=1e-5)
    assert got.rank == sum(value >= expected[7] for value in expected)


def test_the_rank_counts_equals_as_vllm_does() -> None:
    logits = torch.tensor([2.0, 5.0, 2.0, 1.0])
    assert [token_logprobs(logits, i, 0).rank for i in range(4)] == [3, 1, 3, 4]


def test_what_cannot_be_is_minus_infinity() -> None:
    got = token_logprobs(torch.tensor([0.0, -torch.inf, 0.0]), 1, 3)
    assert got.logprobs[0] == got.logprobs[3] == -math.inf
    assert got.logprobs[1:3] == pytest.approx([-math.log(2)] * 2)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_a_prompt_is_scored_the_same_in_parts_of_any_size(size: int) -> None:
    prompt = [3, 1, 4, 1, 5, 9, 2]
    logits = random_logits(7)
    scores = PromptScores(prompt, 2)
    for first in range(0, 7, size):
        scores.add(logits[first : first + size])
    expected = [token_logprobs(logits[i], prompt[i + 1], 2) for i in range(6)]
    assert scores.tokens == expected
    assert scores.is_finite


def test_a_prompt_of_one_token_has_no_log_probability() -> None:
    scores = PromptScores([3], 2)
    scores.add(random_logits(1))
    assert scores.tokens == []


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_remembered(bad: float) -> None:
    scores = PromptScores([1, 2, 3], 0)
    logits = random_logits(2)
    logits[0, 4] = bad
    scores.add(logits)
    scores.add(random_logits(1))
    assert not scores.is_finite
