"""Scores of bucket lists: the steps and the padding that a run would log."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_factory import prefill_step

from neuron_llm.report.advice.prefill_score import score_prefill
from neuron_llm.report.run.padding import PaddingAccount, PaddingCounts
from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.scheduler.buckets import PrefillBucket, get_bucket_for_count

LENGTHS = st.lists(st.integers(1, 60), max_size=30)
BUCKETS = st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True).map(sorted)


def test_each_bucket_counts_its_uses_its_tokens_and_its_padding() -> None:
    score = score_prefill(LengthHistogram.of([3, 8, 9, 20]), [8, 16])
    assert score.by_bucket == {
        PrefillBucket(8): PaddingCounts(3, 15, 9),  # 3, 8, and what is left of 20
        PrefillBucket(16): PaddingCounts(2, 25, 7),  # 9, and the first chunk of 20
    }
    assert score.buckets == (8, 16)
    assert score.num_graphs == 2
    assert score.num_padded_tokens == 16
    assert score.padding_ratio == pytest.approx(16 / 56)


def test_no_prompt_leaves_no_padding() -> None:
    score = score_prefill(LengthHistogram.of([]), [8, 16])
    assert (score.total.num_uses, score.num_padded_tokens, score.padding_ratio) == (0, 0, 0.0)


def test_cached_tokens_count_in_the_bucket_of_the_first_chunk() -> None:
    score = score_prefill(LengthHistogram.of([20, 20, 3]), [8, 16], {20: 64, 3: 32})
    cached = {bucket.num_tokens: c.num_cached_tokens for bucket, c in score.by_bucket.items()}
    assert cached == {8: 32, 16: 64}
    assert score.total.num_cached_tokens == 96


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=30), BUCKETS)
def test_score_is_what_an_account_of_the_same_steps_says(
    prompts: list[tuple[int, int]], buckets: list[int]
) -> None:
    account = PaddingAccount(map(PrefillBucket, buckets))
    for num_tokens, num_cached in prompts:
        start = 0
        while start < num_tokens:
            chunk = min(num_tokens - start, buckets[-1])
            size = get_bucket_for_count(chunk, buckets)
            cached = num_cached if start == 0 else 0
            account.add(prefill_step(chunk, size=size, cached=cached, seconds=0.0))
            start += chunk
    cached_tokens: Counter[int] = Counter()
    for num_tokens, num_cached in prompts:
        cached_tokens[num_tokens] += num_cached
    score = score_prefill(LengthHistogram.of(n for n, _ in prompts), buckets, cached_tokens)
    assert score.by_bucket == account.by_bucket
    assert score.total == account.total


def test_json_has_the_list_and_its_sums() -> None:
    assert score_prefill(LengthHistogram.of([3, 8, 9, 20]), [8, 16]).to_json() == {
        "num_batched_tokens_buckets": [8, 16],
        "num_graphs": 2,
        "num_steps": 5,
        "num_real_tokens": 40,
        "num_padded_tokens": 16,
        "padding_ratio": 16 / 56,
    }
