"""Fitting on the first part of a workload and scoring on the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.advice.bucket_optimizer import BucketLimits
from neuron_llm.report.advice.held_out import HeldOutScores, score_held_out


def scored(lengths: list[int], limits: BucketLimits, share: float = 0.5) -> HeldOutScores:
    scores = score_held_out(lengths, limits, share)
    assert scores is not None
    return scores


def test_buckets_of_the_first_part_are_used_on_the_rest() -> None:
    scores = scored([10, 20, 10, 30], BucketLimits(256, 3))
    assert scores.fitted.buckets == scores.held_out.buckets == (10, 20, 256)
    assert scores.fitted.num_padded_tokens == 0
    assert scores.held_out.num_padded_tokens == 226
    assert scores.held_out_best.buckets == (10, 30, 256)
    assert scores.held_out_best.num_padded_tokens == 0
    assert scores.held_out_default.buckets == (128, 256)
    assert scores.held_out_default.num_padded_tokens == 118 + 98


@pytest.mark.parametrize(
    ("num_prompts", "share", "num_fitted"),
    [(2, 0.5, 1), (10, 0.7, 7), (10, 0.01, 1), (10, 0.99, 9), (3, 0.5, 2)],
)
def test_both_parts_have_a_prompt(num_prompts: int, share: float, num_fitted: int) -> None:
    scores = scored([5] * num_prompts, BucketLimits(8, 2), share)
    assert (scores.num_fitted, scores.num_held_out) == (num_fitted, num_prompts - num_fitted)
    assert scores.fitted.total.num_uses == num_fitted
    assert scores.held_out.total.num_uses == num_prompts - num_fitted


@pytest.mark.parametrize("lengths", [[], [7]])
def test_fewer_than_two_prompts_cannot_be_split(lengths: list[int]) -> None:
    assert score_held_out(lengths, BucketLimits(8, 2)) is None


@given(
    st.lists(st.integers(1, 100), min_size=2, max_size=40),
    st.builds(BucketLimits, st.integers(1, 120), st.integers(1, 6), st.integers(1, 20)),
)
def test_nothing_fits_the_rest_better_than_what_was_fitted_on_it(
    lengths: list[int], limits: BucketLimits
) -> None:
    scores = scored(lengths, limits)
    assert scores.held_out_best.num_padded_tokens <= scores.held_out.num_padded_tokens
    real = scores.fitted.total.num_real_tokens + scores.held_out.total.num_real_tokens
    assert real == sum(lengths)


def test_json_has_every_score() -> None:
    scores = scored([10, 20, 10, 30], BucketLimits(256, 3))
    written = scores.to_json()
    assert (written.pop("num_fitted"), written.pop("num_held_out")) == (2, 2)
    assert written == {
        name: getattr(scores, name).to_json()
        for name in ("fitted", "held_out", "held_out_best", "held_out_default")
    }
