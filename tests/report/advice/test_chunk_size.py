"""Chunk sizes: which are tried, and which is the cheapest under which price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.advice.chunk_size import candidate_chunk_sizes, compare_chunk_sizes
from neuron_llm.report.step_time.step_price import DEFAULT_STEP_PRICE, StepPrice
from neuron_llm.report.workload.length_histogram import LengthHistogram

LENGTHS = LengthHistogram.of([100, 300, 700, 1500])
CANDIDATES = [128, 256, 512, 1024, 1536]


def best_under(price: StepPrice) -> int:
    sizes = compare_chunk_sizes(LENGTHS, CANDIDATES, max_graphs=3, granularity=64, price=price)
    return sizes.best.max_chunk_tokens


def test_candidates_are_powers_of_two_the_current_size_and_the_longest_prompt() -> None:
    found = candidate_chunk_sizes(LENGTHS, current=600, max_model_len=4096, granularity=64)
    assert found == [128, 256, 512, 600, 1024, 1536]


def test_candidates_are_at_most_the_longest_context() -> None:
    found = candidate_chunk_sizes(LENGTHS, current=8192, max_model_len=1501, granularity=64)
    assert found == [128, 256, 512, 1024, 1501]


def test_short_prompts_leave_few_candidates() -> None:
    short = LengthHistogram.of([5, 90])
    assert candidate_chunk_sizes(short, current=512, max_model_len=2048) == [90, 512]
    none = LengthHistogram.of([])
    assert candidate_chunk_sizes(none, current=512, max_model_len=2048) == [1, 512]


def test_without_a_price_of_the_step_the_smallest_size_wins() -> None:
    assert best_under(StepPrice(step=0, token=1, unit="tokens")) == 128


def test_without_a_price_of_the_token_the_smallest_that_needs_one_step_each_wins() -> None:
    assert best_under(StepPrice(step=1, token=0, unit="ms")) == 1536


def test_of_equally_cheap_sizes_the_smallest_wins() -> None:
    lengths = LengthHistogram.of([128, 128])
    sizes = compare_chunk_sizes(lengths, [128, 256], max_graphs=2)
    assert sizes.options[0].cost == sizes.options[1].cost
    assert sizes.best.max_chunk_tokens == 128


def test_option_says_its_buckets_its_cost_and_its_chunked_prompts() -> None:
    sizes = compare_chunk_sizes(LENGTHS, [512], max_graphs=3, granularity=64)
    (option,) = sizes.options
    # Chunks: 100, 300, 512 + 188, 512 + 512 + 476.
    assert option.score.buckets == (192, 320, 512)
    assert option.score.total.num_uses == 7
    padding = (192 - 100) + (320 - 300) + (192 - 188) + (512 - 476)
    assert option.score.num_padded_tokens == padding
    assert option.num_chunked_prompts == 2
    assert option.cost == 7 * DEFAULT_STEP_PRICE.step + 2600 + padding
    assert option.to_json() == {
        "max_num_batched_tokens": 512,
        "cost": option.cost,
        "num_chunked_prompts": 2,
        **option.score.to_json(),
    }


def test_a_prompt_as_long_as_a_chunk_is_not_chunked() -> None:
    sizes = compare_chunk_sizes(LENGTHS, [299, 300, 700, 1500], max_graphs=1)
    assert [option.num_chunked_prompts for option in sizes.options] == [3, 2, 1, 0]


def test_json_has_the_price_the_options_and_the_best() -> None:
    sizes = compare_chunk_sizes(LENGTHS, [512, 1024], max_graphs=3)
    assert sizes.to_json() == {
        "price": {"step": 230, "token": 1, "unit": "tokens"},
        "options": [option.to_json() for option in sizes.options],
        "best_max_num_batched_tokens": sizes.best.max_chunk_tokens,
    }


@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(1, 64),
    st.integers(0, 1000),
)
def test_the_dearer_the_step_the_larger_the_chunk(
    prompts: list[int], max_graphs: int, granularity: int, step: int
) -> None:
    lengths = LengthHistogram.of(prompts)
    candidates = candidate_chunk_sizes(
        lengths, current=512, max_model_len=1024, granularity=granularity
    )
    cheap, dear = (
        compare_chunk_sizes(
            lengths,
            candidates,
            max_graphs=max_graphs,
            granularity=granularity,
            price=StepPrice(price, 1, "tokens"),
        )
        for price in (step, 2 * step + 1)
    )
    assert dear.best.score.total.num_uses <= cheap.best.score.total.num_uses


@pytest.mark.parametrize("max_graphs", [1, 2, 8])
def test_no_list_has_more_graphs_than_asked_for(max_graphs: int) -> None:
    sizes = compare_chunk_sizes(LENGTHS, CANDIDATES, max_graphs=max_graphs)
    assert all(option.score.num_graphs <= max_graphs for option in sizes.options)
    assert [option.score.buckets[-1] for option in sizes.options] == CANDIDATES
