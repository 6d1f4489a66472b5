"""Logits processors against those of Hugging Face, and against formulas written by hand."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from neuron_llm.runtime.sampling.logits_processors import (
    AllowedTokens,
    BadWords,
    EndingTokens,
    LogitBias,
    OutputPenalties,
    RepetitionPenalty,
    logits_processors,
)
from neuron_llm.runtime.sampling.sampler import Sampler
from neuron_llm.runtime.sampling.sampling_params import SamplingParams

VOCAB_SIZE = 61
EOS = 3
TOKENS = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=30)


def random_logits(seed: int) -> torch.Tensor:
    return torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * 4


def applied(processor: Any, logits: torch.Tensor, output: list[int]) -> torch.Tensor:
    changed = logits.clone()
    processor.apply(changed, output)
    return changed


def hugging_face(processor: Any, logits: torch.Tensor, token_ids: list[int]) -> torch.Tensor:
    scores: torch.Tensor = processor(torch.tensor([token_ids], dtype=torch.int64), logits[None])
    return scores[0]


@given(
    seed=st.integers(0, 10**6),
    penalty=st.sampled_from([0.1, 0.9, 1.05, 1.3, 5.0]),
    prompt=TOKENS.filter(bool),
    output=TOKENS,
)
def test_the_repetition_penalty_is_that_of_hugging_face(
    seed: int, penalty: float, prompt: list[int], output: list[int]
) -> None:
    logits = random_logits(seed)
    ours = applied(RepetitionPenalty(penalty, prompt), logits, output)
    theirs = hugging_face(RepetitionPenaltyLogitsProcessor(penalty), logits, prompt + output)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@given(
    seed=st.integers(0, 10**6),
    frequency=st.floats(-2, 2),
    presence=st.floats(-2, 2),
    output=TOKENS,
)
def test_frequency_counts_each_time_and_presence_counts_once(
    seed: int, frequency: float, presence: float, output: list[int]
) -> None:
    logits = random_logits(seed)
    processor = OutputPenalties(frequency_penalty=frequency, presence_penalty=presence)
    counts = Counter(output)
    expected = [
        logit - frequency * counts[token_id] - presence * (counts[token_id] > 0)
        for token_id, logit in enumerate(logits.tolist())
    ]
    ours = applied(processor, logits, output)
    torch.testing.assert_close(ours, torch.tensor(expected), rtol=1e-5, atol=1e-5)
    unseen = [token_id for token_id in range(VOCAB_SIZE) if not counts[token_id]]
    assert torch.equal(ours[unseen], logits[unseen])


@given(
    seed=st.integers(0, 10**6),
    words=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6).map(
        lambda words: [word for word in words if word != [EOS]]
    ),
    output=st.lists(st.integers(0, 5), min_size=5, max_size=12),
)
def test_bad_words_are_those_of_hugging_face(
    seed: int, words: list[list[int]], output: list[int]
) -> None:
    # Hugging Face looks at no word longer than the text so far, hence outputs of five and more.
    if words:
        logits = random_logits(seed)
        theirs = NoBadWordsLogitsProcessor(words, eos_token_id=EOS)
        ours = applied(BadWords(words), logits, output)
        assert torch.equal(ours, hugging_face(theirs, logits, output))


def test_a_bad_word_of_several_tokens_is_blocked_only_behind_its_others() -> None:
    processor = BadWords([[1, 2, 3]])

    def blocked(output: list[int]) -> list[int]:
        logits = applied(processor, torch.zeros(6), output)
        return logits.isinf().nonzero().flatten().tolist()

    assert blocked([1, 2]) == blocked([0, 1, 2]) == [3]
    assert blocked([]) == blocked([2]) == blocked([1]) == blocked([1, 2, 0]) == []
    assert blocked([2, 1]) == blocked([1, 0, 2]) == []


@pytest.mark.parametrize("num_output_tokens", range(5))
def test_min_tokens_is_the_minimum_of_new_tokens_of_hugging_face(num_output_tokens: int) -> None:
    sampler = Sampler([EOS, 7])
    state = sampler.new_state("r", SamplingParams(temperature=0, min_tokens=3, max_tokens=None))
    logits = random_logits(5)
    logits[[EOS, 7]] = 50.0
    for _ in range(num_output_tokens):
        state.add(1)
    theirs = MinNewTokensLengthLogitsProcessor(2, 3, [EOS, 7])
    expected = hugging_face(theirs, logits, [4, 4] + [1] * num_output_tokens)
    assert sampler.sample(logits[None], [state]) == [int(expected.argmax())]


def test_ending_tokens_that_the_model_has_no_logits_for_are_passed_over() -> None:
    assert applied(EndingTokens([1, 99]), torch.zeros(3), []).tolist() == [0, -torch.inf, 0]
    assert applied(EndingTokens([]), torch.zeros(3), []).tolist() == [0, 0, 0]


@given(
    seed=st.integers(0, 10**6),
    biases=st.dictionaries(
        st.integers(0, VOCAB_SIZE - 1), st.floats(-100, 100, width=32).filter(bool), min_size=1
    ),
)
def test_the_logit_bias_is_the_sequence_bias_of_hugging_face(
    seed: int, biases: dict[int, float]
) -> None:
    logits = random_logits(seed)
    theirs = SequenceBiasLogitsProcessor({(token_id,): bias for token_id, bias in biases.items()})
    ours = applied(LogitBias(biases), logits, [])
    torch.testing.assert_close(ours, hugging_face(theirs, logits, [0, 1]), rtol=0, atol=0)


def test_only_allowed_tokens_keep_their_logits() -> None:
    logits = random_logits(1)
    changed = applied(AllowedTokens([5, 0, 9]), logits, [])
    assert changed.isfinite().nonzero().flatten().tolist() == [0, 5, 9]
    assert torch.equal(changed[[0, 5, 9]], logits[[0, 5, 9]])


def names_of(**fields: Any) -> list[str]:
    processors = logits_processors(
        SamplingParams(max_tokens=None, **fields),
        prompt_token_ids=[1, 2],
        bad_words=[[4]] if "bad_words" in fields else [],
        ending_token_ids=[EOS],
    )
    return [type(processor).__name__ for processor in processors]


def test_a_request_that_asks_for_nothing_has_no_processor() -> None:
    assert names_of() == []
    assert names_of(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, seed=3, logprobs=5) == []
    assert names_of(repetition_penalty=1, presence_penalty=0, frequency_penalty=0) == []


def test_each_field_brings_its_own_processor_in_the_order_of_vllm() -> None:
    fields: dict[str, Any] = {
        "allowed_token_ids": [1],
        "bad_words": ["x"],
        "min_tokens": 2,
        "logit_bias": {1: 1.0},
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
    }
    assert names_of(**dict(reversed(fields.items()))) == [
        "AllowedTokens",
        "BadWords",
        "EndingTokens",
        "LogitBias",
        "RepetitionPenalty",
        "OutputPenalties",
    ]
    for field, value in fields.items():
        assert len(names_of(**{field: value})) == 1
    assert names_of(frequency_penalty=-0.5) == ["OutputPenalties"]


def test_a_bias_comes_before_the_repetition_penalty_and_that_before_the_others() -> None:
    sampler = Sampler([])
    params = SamplingParams(
        temperature=0,
        logit_bias={0: 3.0},
        repetition_penalty=2.0,
        frequency_penalty=1.0,
        presence_penalty=0.5,
    )
    state = sampler.new_state("r", params, prompt_token_ids=[0])
    state.add(0)
    # (-1 + 3) / 2 - 1 - 0.5 = -0.5. In another order it would be -2.25, 2, or more.
    for other, expected in ((-0.51, 0), (-0.49, 1)):
        copy = sampler.new_state("r", params, prompt_token_ids=[0])
        copy.add(0)
        assert sampler.sample(torch.tensor([[-1.0, other]]), [copy]) == [expected]


def test_min_tokens_leave_no_processor_behind() -> None:
    state = Sampler([EOS]).new_state("r", SamplingParams(min_tokens=2, logit_bias={1: 1}))
    counts = []
    for token_id in (8, 9, 10):
        counts.append(len(state.processors))
        state.add(token_id)
    assert counts == [2, 2, 1]
    assert state.output_token_ids == [8, 9, 10]


PROCESSED: list[dict[str, Any]] = [
    {"repetition_penalty": 1.5},
    {"presence_penalty": 2, "frequency_penalty": 0.3},
    {"logit_bias": {7: 9.0, 8: -9.0}},
    {"allowed_token_ids": list(range(0, VOCAB_SIZE, 3))},
    {"min_tokens": 4, "stop_token_ids": list(range(20))},
    {},
]


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_row_does_not_depend_on_its_place_or_its_neighbours(temperature: float) -> None:
    def states(sampler: Sampler) -> list[Any]:
        return [
            sampler.new_state(
                f"r{i}",
                SamplingParams(temperature=temperature, seed=i, max_tokens=None, **fields),
                prompt_token_ids=[i, i + 1],
            )
            for i, fields in enumerate(PROCESSED)
        ]

    sampler = Sampler([EOS])
    steps = [torch.stack([random_logits(100 * s + r) for r in range(6)]) for s in range(12)]
    alone = []
    for row, state in enumerate(states(sampler)):
        alone.append([sampler.sample(step[row][None], [state])[0] for step in steps])
    rng = random.Random(0)
    together = states(sampler)
    for number, step in enumerate(steps):
        before = step.clone()
        order = rng.sample(range(6), 6)
        chosen = sampler.sample(step[order], [together[row] for row in order])
        assert chosen == [alone[row][number] for row in order]
        assert torch.equal(step, before)
    # What each asks for does make a difference.
    plain = sampler.new_state("p", SamplingParams(temperature=0, max_tokens=None))
    if temperature == 0:
        greedy = [sampler.sample(step[0][None], [plain])[0] for step in steps]
        assert greedy != alone[0]


def test_a_request_whose_every_token_is_forbidden_is_named() -> None:
    from neuron_llm.runtime.sampling.sampler import InvalidLogitsError

    sampler = Sampler([])
    params = SamplingParams(temperature=0, allowed_token_ids=[1], bad_words=["x"])
    states = [
        sampler.new_state("a", SamplingParams(temperature=0)),
        sampler.new_state("b", params, bad_words=[[1]]),
    ]
    with pytest.raises(InvalidLogitsError) as raised:
        sampler.sample(torch.zeros(2, 4), states)
    assert raised.value.request_ids == ("b",)
