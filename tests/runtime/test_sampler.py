from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from neuron_llm.runtime.sampler import (
    InvalidLogitsError,
    Sampler,
    SamplingState,
    kept_distribution,
)
from neuron_llm.runtime.sampling_params import SamplingParams

VOCAB_SIZE = 97
EOS = 3


def make_state(sampler: Sampler | None = None, name: str = "r", **fields: Any) -> SamplingState:
    fields = {"max_tokens": None, **fields}
    return (sampler or Sampler([EOS])).new_state(name, SamplingParams(**fields))


def random_logits(num_rows: int, seed: int, vocab_size: int = VOCAB_SIZE) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def hugging_face_probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    scores = logits[None]
    token_ids = torch.zeros(1, 0, dtype=torch.int64)
    scores = TemperatureLogitsWarper(float(params.temperature))(token_ids, scores)
    if params.top_k > 0:
        scores = TopKLogitsWarper(params.top_k)(token_ids, scores)
    scores = scores.double()
    if params.top_p < 1:
        scores = TopPLogitsWarper(float(params.top_p))(token_ids, scores)
    probabilities: torch.Tensor = scores.softmax(dim=-1)[0]
    return probabilities


def dense(token_ids: torch.Tensor, weights: torch.Tensor, vocab_size: int) -> torch.Tensor:
    probabilities = torch.zeros(vocab_size, dtype=torch.float64)
    probabilities[token_ids] = weights / weights.sum()
    return probabilities


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.05, 2.0),
    top_k=st.sampled_from([0, -1, 2, 3, 10, 96, 97, 500]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.1, 1e-6]),
)
def test_the_distribution_is_that_of_the_hugging_face_processors(
    seed: int, temperature: float, top_k: int, top_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
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


def test_a_tiny_temperature_is_raised_and_never_overflows() -> None:
    logits = torch.tensor([1e10, 2e10, -3e38])
    tiny = kept_distribution(logits, SamplingParams(temperature=1e-30))
    smallest = kept_distribution(logits, SamplingParams(temperature=0.01))
    assert tiny[1].tolist() == smallest[1].tolist() == [0.0, 1.0, 0.0]
    assert Sampler([]).sample(logits[None], [make_state(temperature=1e-30)]) == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_greedy_takes_the_lowest_of_the_largest_in_every_dtype(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, 7.0, 7.0, 1.0], [2.0, 2.0, 2.0, 2.0]]).to(dtype)
    states = [make_state(temperature=0), make_state(temperature=0)]
    assert Sampler([]).sample(logits, states) == [1, 0]


def test_an_all_greedy_batch_is_one_argmax(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[torch.Size] = []
    argmax = torch.Tensor.argmax

    def counted(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(self.shape)
        return argmax(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "argmax", counted)
    logits = random_logits(4, seed=1)
    expected = [max(range(VOCAB_SIZE), key=row.__getitem__) for row in logits.tolist()]
    assert Sampler([]).sample(logits, [make_state(temperature=0) for _ in range(4)]) == expected
    assert calls == [torch.Size([4, VOCAB_SIZE])]


def test_top_k_one_equals_temperature_zero_even_with_ties() -> None:
    logits = random_logits(8, seed=2).round()
    greedy = Sampler([]).sample(logits, [make_state(temperature=0) for _ in range(8)])
    top_one = Sampler([]).sample(
        logits, [make_state(top_k=1, temperature=2.0, seed=i) for i in range(8)]
    )
    assert top_one == greedy


def test_a_seeded_request_draws_the_same_whatever_else_is_in_the_batch() -> None:
    steps = [random_logits(1, seed=step)[0] for step in range(40)]

    def alone() -> list[int]:
        sampler, state = Sampler([EOS]), make_state(seed=11, top_p=0.95)
        return [sampler.sample(row[None], [state])[0] for row in steps]

    def among_others(shuffler: random.Random) -> list[int]:
        sampler, state = Sampler([EOS]), make_state(seed=11, top_p=0.95)
        chosen = []
        for step, row in enumerate(steps):
            others = [make_state(seed=i) for i in range(shuffler.randrange(4))]
            others += [make_state(temperature=0) for _ in range(shuffler.randrange(2))]
            rows = [state, *others]
            shuffler.shuffle(rows)
            logits = random_logits(len(rows) + 2, seed=1000 + step)  # and two padded rows
            index = next(i for i, other in enumerate(rows) if other is state)
            logits[index] = row
            chosen.append(sampler.sample(logits, rows)[index])
        return chosen

    expected = alone()
    assert alone() == expected
    assert among_others(random.Random(0)) == expected
    assert among_others(random.Random(1)) == expected
    assert len(set(expected)) > 5


def test_requests_without_a_seed_draw_differently() -> None:
    logits = torch.zeros(1, 4096)
    sampler = Sampler([])
    first, second = (
        [sampler.sample(logits, [state])[0] for _ in range(8)]
        for state in (make_state(), make_state())
    )
    assert first != second


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


@pytest.mark.parametrize("point", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_the_unit_interval_draw_tokens_that_are_possible(
    monkeypatch: pytest.MonkeyPatch, point: float
) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_, dtype, **__: torch.tensor(point, dtype=dtype))
    for last in (0.1, 0.7, 3.0, 3.3, 30.0):
        logits = torch.tensor([[-torch.inf, 1.0, 2.0, last, -torch.inf]])
        token_id = Sampler([]).sample(logits, [make_state(seed=0)])[0]
        assert token_id == (1 if point == 0 else 3)


def test_nothing_outside_the_kept_set_is_ever_drawn() -> None:
    sampler, state = Sampler([]), make_state(seed=4, top_k=3)
    logits = torch.tensor([[1.0, 1.1, 0.9, 1.2, 0.8, 1.0]])
    drawn = {sampler.sample(logits, [state])[0] for _ in range(400)}
    assert drawn == {0, 1, 3, 5}  # 0 and 5 tie for the third place


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_ending_token_is_chosen_before_min_tokens(temperature: float) -> None:
    sampler = Sampler([EOS])
    state = make_state(
        sampler, temperature=temperature, min_tokens=3, stop_token_ids=[5, 10**6], seed=1
    )
    logits = torch.zeros(1, 8)
    logits[0, EOS], logits[0, 5], logits[0, 6] = 100.0, 90.0, 50.0
    before = logits.clone()
    assert [sampler.sample(logits, [state])[0] for _ in range(5)] == [6, 6, 6, EOS, EOS]
    assert torch.equal(logits, before)


def test_min_tokens_masks_only_its_own_row() -> None:
    sampler = Sampler([0])
    states = [make_state(sampler, temperature=0, min_tokens=n) for n in (0, 1, 0)]
    logits = torch.tensor([[9.0, 1.0, 2.0]] * 3)
    assert sampler.sample(logits, states) == [0, 2, 0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_logits_name_the_request_and_leave_every_state_untouched(
    temperature: float, bad: float
) -> None:
    sampler = Sampler([])
    states = [make_state(sampler, name, temperature=temperature, seed=1) for name in "abc"]
    logits = random_logits(3, seed=3)
    expected = [sampler.sample(logits[[0, 2]], [copy.copy(states[0]), make_state(seed=9)])[0]]
    states[0] = make_state(sampler, "a", temperature=temperature, seed=1)
    logits[1, 50] = bad
    with pytest.raises(InvalidLogitsError, match="the logits of `b` hold no finite") as raised:
        sampler.sample(logits, states)
    assert raised.value.request_ids == ("b",)
    assert [state.num_output_tokens for state in states] == [0, 0, 0]
    assert sampler.sample(logits[[0, 2]], [states[0], states[2]])[0] == expected[0]


def test_nan_in_padded_rows_is_never_read() -> None:
    logits = torch.full((4, 5), torch.nan)
    logits[0] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    assert Sampler([]).sample(logits, [make_state(temperature=0)]) == [1]


def test_a_row_whose_every_token_is_masked_is_an_error() -> None:
    sampler = Sampler([0, 1])
    with pytest.raises(InvalidLogitsError):
        sampler.sample(torch.zeros(1, 2), [make_state(sampler, temperature=0, min_tokens=1)])


def test_an_empty_batch_samples_nothing() -> None:
    assert Sampler([]).sample(torch.zeros(4, 5), []) == []
