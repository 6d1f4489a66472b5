"""Sampling fields through the engine, against `generate` of Hugging Face where it has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import Compiled
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.errors import RequestError

NUM_TOKENS = 12


def greedy(**fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0, ignore_eos=True, max_tokens=NUM_TOKENS, **fields)


@pytest.fixture(scope="module")
def llm(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture(scope="module")
def reference(llama: Compiled) -> Any:
    return load_reference(llama.model)


def tokens(llm: LLM, prompt: list[int], params: SamplingParams) -> list[int]:
    return list(llm.generate([prompt], params)[0].outputs[0].token_ids)


def generated(reference: Any, prompt: list[int], **options: Any) -> list[int]:
    output = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        **options,
    )
    ids: list[int] = output[0, len(prompt) :].tolist()
    return ids


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0])
def test_the_repetition_penalty_counts_the_prompt_and_the_output(
    llm: LLM, reference: Any, penalty: float
) -> None:
    for length in (1, 9, 25):
        prompt = random_prompt(length, seed=length)
        expected = generated(reference, prompt, repetition_penalty=penalty)
        assert tokens(llm, prompt, greedy(repetition_penalty=penalty)) == expected
    assert expected != generated(reference, prompt)


def test_bias_and_bad_words_are_those_of_hugging_face(llm: LLM, reference: Any) -> None:
    prompt = random_prompt(9, seed=3)
    plain = generated(reference, prompt)
    bias = {plain[0]: -4.0, plain[2]: -50.0}
    expected = generated(reference, prompt, sequence_bias={(i,): b for i, b in bias.items()})
    assert tokens(llm, prompt, greedy(logit_bias=bias)) == expected != plain


def test_a_bad_word_is_not_generated_and_its_beginning_is(llm: LLM) -> None:
    x, y = llm.engine.tokenizer.encode_part("xy")
    # Beside these two every token is so unlikely that it is never the largest.
    bias = {x: 100.0, y: 70.0}
    assert tokens(llm, [1, 2, 3], greedy(logit_bias=bias)) == [x] * NUM_TOKENS
    assert tokens(llm, [1, 2, 3], greedy(logit_bias=bias, bad_words=["x"])) == [y] * NUM_TOKENS
    # Behind an `x` another is forbidden, and behind the `y` that comes instead it is not.
    without_pairs = greedy(logit_bias=bias, bad_words=["xx"])
    assert tokens(llm, [1, 2, 3], without_pairs) == [x, y] * (NUM_TOKENS // 2)
    # What stands in the prompt was not produced.
    assert tokens(llm, [1, 2, x], without_pairs) == [x, y] * (NUM_TOKENS // 2)


def test_only_allowed_tokens_are_chosen_greedily_and_drawn(llm: LLM) -> None:
    allowed = [11, 12, 13]
    prompt = random_prompt(5, seed=1)
    assert set(tokens(llm, prompt, greedy(allowed_token_ids=allowed))) <= set(allowed)
    params = SamplingParams(
        seed=1, temperature=2, max_tokens=40, allowed_token_ids=allowed, ignore_eos=True
    )
    assert set(tokens(llm, prompt, params)) == set(allowed)


@pytest.mark.parametrize(("frequency", "presence"), [(1.5, 0), (0, 2), (0.8, -1.3), (-2, -2)])
def test_presence_and_frequency_count_the_output_only(
    llm: LLM, reference: Any, frequency: float, presence: float
) -> None:
    prompt = random_prompt(9, seed=3)
    output: list[int] = []
    # The weights are drawn wide: a large bias makes the penalties matter.
    bias = {5: 60.0, 6: 59.0, 7: 58.5, prompt[0]: 60.0}
    for _ in range(NUM_TOKENS):
        with torch.no_grad():
            logits = reference(torch.tensor([prompt + output])).logits[0, -1].tolist()
        for token_id, amount in bias.items():
            logits[token_id] += amount
        for token_id in set(output):
            logits[token_id] -= frequency * output.count(token_id) + presence
        output.append(max(range(len(logits)), key=logits.__getitem__))
    params = greedy(frequency_penalty=frequency, presence_penalty=presence, logit_bias=bias)
    assert tokens(llm, prompt, params) == output


def test_min_p_of_one_and_top_k_of_one_are_greedy(llm: LLM, reference: Any) -> None:
    prompt = random_prompt(7, seed=2)
    expected = reference_tokens(reference, prompt, NUM_TOKENS)
    for fields in ({"min_p": 1.0}, {"top_k": 1}, {"top_p": 1e-9}):
        params = SamplingParams(temperature=1.7, max_tokens=NUM_TOKENS, ignore_eos=True, **fields)
        assert tokens(llm, prompt, params) == expected


def test_a_processed_request_does_not_depend_on_its_neighbours(llm: LLM) -> None:
    prompts = [random_prompt(n, seed=n) for n in (4, 9, 17, 26, 31, 2)]
    fields: list[dict[str, Any]] = [
        {"repetition_penalty": 1.4},
        {"presence_penalty": 1.0, "min_p": 0.02},
        {"frequency_penalty": 0.7, "top_k": 40},
        {"logit_bias": {65: 5.0}, "min_tokens": 5, "stop_token_ids": list(range(60))},
        {"bad_words": ["a", "b", "c"], "allowed_token_ids": list(range(20, 120))},
        {},
    ]
    params = [
        SamplingParams(seed=n, max_tokens=10, ignore_eos=True, **one)
        for n, one in enumerate(fields)
    ]
    alone = [llm.generate([p], q)[0].outputs for p, q in zip(prompts, params, strict=True)]
    assert [output.outputs for output in llm.generate(prompts, params)] == alone


@pytest.mark.parametrize(
    "fields",
    [
        {"stop_token_ids": [272]},
        {"logit_bias": {272: 1}},
        {"allowed_token_ids": [1, 272]},
        {"logprobs": 273},
        {"prompt_logprobs": 273},
        {"bad_words": [" "]},
    ],
)
def test_tokens_that_the_model_does_not_have_are_refused_when_added(
    llm: LLM, fields: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as raised:
        llm.generate([[1, 2]], SamplingParams(**fields))
    assert raised.value.code == "invalid_sampling"
    assert f"`{next(iter(fields))}`" in raised.value.message
    assert not llm.engine.has_unfinished_requests()


def test_a_request_whose_every_token_is_forbidden_fails_alone(llm: LLM) -> None:
    (word,) = llm.engine.tokenizer.encode_part("a")
    impossible = SamplingParams(allowed_token_ids=[word], bad_words=["a"])
    good, bad = llm.generate([[1], [2]], [greedy(), impossible])
    assert (good.error, good.outputs[0].finish_reason) == (None, "length")
    assert bad.outputs[0].finish_reason == "error"
