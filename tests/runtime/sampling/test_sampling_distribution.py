"""Which tokens may be drawn, and how often they are: as Hugging Face's processors say."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampler_factory import (
    VOCAB_SIZE,
    dense,
    hugging_face_probabilities,
    make_state,
    random_logits,
)

from neuron_llm.runtime.sampling.sampler import Sampler, kept_distribution
from neuron_llm.runtime.sampling.sampling_params import SamplingParams


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.05, 2.0),
    top_k=st.sampled_from([0, -1, 2, 3, 10, 96, 97, 500]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.1, 1e-6]),
    min_p=st.sampled_from([0, 0.001, 0.05, 0.3, 0.999, 1]),
)
def test_the_distribution_is_that_of_the_hugging_face_processors(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = random_logits(1, seed)[0]
    token_ids, weights = kept_distribution(logits, params)
    expected = hugging_face_probabilities(logits, params)
    assert token_ids.tolist() == expected.nonzero().flatten().tolist()
    torch.testing.assert_close(
        dense(token_ids, weights, VOCAB_SIZE), expected, rtol=1e-5, atol=1e-9
    )


@pytest.mark.parametrize("temperature", [0.3, 2.0])
@pytest.mark.parametrize("top_p", [0.2, 0.95, 0.99999])
def test_a_nucleus_larger_than_the_sorted_candidates_is_whole(
    temperature: float, top_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_p=top_p)
    logits = random_logits(1, seed=5, vocab_size=5000)[0]
    expected = hugging_face_probabilities(logits.double(), params)
    token_ids, _ = kept_distribution(logits, params)
    assert token_ids.tolist() == expected.nonzero().flatten().tolist()


def test_top_k_keeps_exactly_the_largest_and_whatever_ties_with_the_last() -> None:
    logits = torch.tensor([1.0, 5.0, 3.0, 3.0, 0.0, 4.0])
    kept = [
        kept_distribution(logits, SamplingParams(top_k=k))[0].tolist() for k in (2, 3, 4, 5, 6, 9)
    ]
    assert kept[:3] == [[1, 5], [1, 2, 3, 5], [1, 2, 3, 5]]
    assert kept[3:] == [[0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    kept = {
        p: kept_distribution(logits, SamplingParams(top_p=p))[0].tolist()
        for p in (0.05, 0.39, 0.41, 0.69, 0.71, 0.89, 0.91)
    }
    assert kept[0.05] == kept[0.39] == [1]
    assert kept[0.41] == kept[0.69] == [1, 3]
    assert kept[0.71] == kept[0.89] == [1, 2, 3]
    assert kept[0.91] == [0, 1, 2, 3]


def test_top_p_prefers_the_lowest_ids_among_equal_tokens() -> None:
    logits = torch.zeros(4000)
    token_ids, _ = kept_distribution(logits, SamplingParams(top_p=0.5))
    assert token_ids.tolist() == list(range(2000))


def test_top_p_counts_only_what_top_k_left() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    token_ids, weights = kept_distribution(logits, SamplingParams(top_k=2, top_p=0.57))
    assert token_ids.tolist() == [0]  # 0.4 of 0.7 reaches 0.57; 0.4 of 1 would not
    assert weights.tolist() == [1.0]


def test_min_p_is_relative_to_the_most_likely_token_and_comes_before_top_p() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    kept = {
        p: kept_distribution(logits, SamplingParams(min_p=p))[0].tolist()
        for p in (0.24, 0.26, 0.49, 0.51, 0.76, 1)
    }
    assert kept[0.24] == [0, 1, 2, 3]
    assert kept[0.26] == kept[0.49] == [0, 1, 2]
    assert kept[0.51] == [0, 1]
    assert kept[0.76] == kept[1] == [0]
    # 0.4 of the 0.9 that min-p leaves reaches 0.44; 0.4 of 1 does not.
    token_ids, _ = kept_distribution(logits, SamplingParams(min_p=0.26, top_p=0.44))
    assert token_ids.tolist() == [0]
    token_ids, _ = kept_distribution(logits, SamplingParams(top_p=0.44))
    assert token_ids.tolist() == [0, 1]


def test_a_tiny_temperature_is_raised_and_never_overflows() -> None:
    logits = torch.tensor([1e10, 2e10, -3e38])
    tiny = kept_distribution(logits, SamplingParams(temperature=1e-30))
    smallest = kept_distribution(logits, SamplingParams(temperature=0.01))
    assert tiny[1].tolist() == smallest[1].tolist() == [0.0, 1.0, 0.0]
    assert Sampler([]).sample(logits[None], [make_state(temperature=1e-30)]) == [1]


def test_evenly_spread_draws_give_each_token_exactly_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = iter([(index + 0.5) / 1000 for index in range(1000)])

    def next_point(*_: Any, dtype: torch.dtype, **__: Any) -> torch.Tensor:
        return torch.tensor(next(points), dtype=dtype)

    monkeypatch.setattr(torch, "rand", next_point)
    logits = torch.tensor([[0.1, 0.0, 0.6, 0.3]]).log()
    sampler, state = Sampler([]), make_state(seed=0)
    counts = Counter(sampler.sample(logits, [state])[0] for _ in range(1000))
    assert counts == {0: 100, 2: 600, 3: 300}


def chi_square(counts: Counter[int], probabilities: torch.Tensor, num_draws: int) -> float:
    """Return the statistic over the tokens that can be drawn; no other may have been."""
    possible = probabilities.nonzero().flatten().tolist()
    assert set(counts) <= set(possible)
    return sum(
        (counts[i] - num_draws * float(probabilities[i])) ** 2
        / (num_draws * float(probabilities[i]))
        for i in possible
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 1.7, "top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"temperature": 1.3, "min_p": 0.02, "top_k": 9, "top_p": 0.95},
    ],
)
def test_draws_have_the_distribution_of_the_hugging_face_processors(fields: dict[str, Any]) -> None:
    logits = random_logits(1, seed=8, vocab_size=12) / 2
    num_draws = 4000
    sampler, state = Sampler([]), make_state(seed=21, **fields)
    counts = Counter(sampler.sample(logits, [state])[0] for _ in range(num_draws))
    expected = hugging_face_probabilities(logits[0], state.params)
    degrees = int((expected > 0).sum()) - 1
    # The statistic has mean `degrees` and variance `2 * degrees`; five deviations are generous.
    assert chi_square(counts, expected, num_draws) < degrees + 5 * (2 * degrees) ** 0.5 + 1
    flat = torch.full((12,), 1 / 12, dtype=torch.float64)
    assert chi_square(Counter(range(12)), flat, 12) == 0
    if set(counts) == set(range(12)):
        assert chi_square(counts, flat, num_draws) > 200


def test_draws_follow_what_processors_have_made_of_the_logits() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log()
    params = SamplingParams(seed=3, logit_bias={0: math.log(6)}, allowed_token_ids=[0, 1, 2])
    sampler = Sampler([])
    state = sampler.new_state("r", params)
    counts = Counter(sampler.sample(logits, [state])[0] for _ in range(4000))
    expected = torch.tensor([6, 2, 3, 0], dtype=torch.float64) / 11
    assert chi_square(counts, expected, 4000) < 13.8  # one in a thousand, two degrees of freedom


def test_completion_i_of_a_seed_draws_what_a_request_of_the_seed_plus_i_draws() -> None:
    sampler, logits = Sampler([]), random_logits(1, seed=1)
    draws = []
    for seed, index in ((7, 0), (7, 1), (8, 0), (7, 2), (9, 0)):
        state = sampler.new_state("r", SamplingParams(seed=seed, n=3), index=index)
        draws.append([sampler.sample(logits, [state])[0] for _ in range(30)])
    assert draws[1] == draws[2] != draws[0]
    assert draws[3] == draws[4] != draws[0]


@pytest.mark.parametrize("seed", [2**63 - 1, -(2**63), -2])
def test_every_seed_has_seeds_for_its_completions(seed: int) -> None:
    sampler = Sampler([])
    first, second = (
        sampler.new_state("r", SamplingParams(seed=seed, n=2), index=1) for _ in range(2)
    )
    logits = torch.zeros(1, 4096)
    assert sampler.sample(logits, [first]) == sampler.sample(logits, [second])
