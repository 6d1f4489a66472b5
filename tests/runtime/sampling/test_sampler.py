from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from sampler_factory import EOS, VOCAB_SIZE, make_state, random_logits

from neuron_llm.runtime.sampling.sampler import InvalidLogitsError, Sampler


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
    assert [state.output_token_ids for state in states] == [[], [], []]
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
