"""Faults of request handling: the empty prompt, the batch that is not full, the early stop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Compiled
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.errors import RequestError
from neuron_llm.runtime.artifact import Artifact
from neuron_llm.runtime.engine import Engine


@pytest.fixture(scope="module")
def loaded(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture
def llm(loaded: LLM) -> Iterator[LLM]:
    """The model with an empty prefix cache; a test leaves no request behind."""
    assert loaded.engine.scheduler.reset_prefix_cache()
    yield loaded
    assert not loaded.engine.has_unfinished_requests()
    assert loaded.engine.scheduler.kv_cache_manager.free_blocks == 64


@pytest.fixture(scope="module")
def reference(llama: Compiled) -> Any:
    return load_reference(llama.model)


def test_an_empty_prompt_is_refused_and_its_neighbours_finish(llm: LLM, reference: Any) -> None:
    """The fault: a prompt without tokens ends the engine, and everybody's request with it."""
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    engine = llm.engine
    engine.add_request("before", [1, 2, 3], params)
    engine.step()
    with pytest.raises(RequestError, match="no tokens"):
        engine.add_request("empty", [], params)
    engine.add_request("behind", [4, 5], params)
    texts = {"before": [1, 2, 3], "behind": [4, 5]}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.result is not None:
                prompt = texts.pop(output.request_id)
                tokens = list(output.result.outputs[0].token_ids)
                assert tokens == reference_tokens(reference, prompt, 4)
    assert texts == {}


@pytest.mark.parametrize("num_prompts", [0, 1, 2, 3])
def test_fewer_prompts_than_rows_give_what_each_gives_alone(
    llm: LLM, reference: Any, num_prompts: int
) -> None:
    """The fault: a batch that is not full breaks, or its padded rows reach the real ones."""
    prompts = [random_prompt(3 + 7 * n, seed=n) for n in range(num_prompts)]
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    outputs = llm.generate(prompts, params)
    assert [list(output.outputs[0].token_ids) for output in outputs] == [
        reference_tokens(reference, prompt, 6) for prompt in prompts
    ]


def test_a_model_that_wants_to_end_at_once_goes_on_to_min_tokens(
    llm: LLM, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: the end of sequence stops a request before its `min_tokens`."""
    prompt = random_prompt(5, seed=9)
    favourite = reference_tokens(reference, prompt, 1)[0]
    eos = (*llm.engine.eos_token_ids, favourite)
    monkeypatch.setattr(llm.engine, "eos_token_ids", eos)
    monkeypatch.setattr(llm.engine.runner.sampler, "eos_token_ids", eos)
    at_once, later = llm.generate(
        [prompt, prompt],
        [SamplingParams(temperature=0, max_tokens=8, min_tokens=n) for n in (0, 5)],
    )
    assert list(at_once.outputs[0].token_ids) == [favourite]
    assert at_once.outputs[0].text == ""
    tokens = later.outputs[0].token_ids
    assert len(tokens) >= 5 and favourite not in tokens[:5]


def test_a_prompt_in_chunks_yields_nothing_before_its_first_token(llama: Compiled) -> None:
    """The fault: an empty first token after the first chunk, which spoils the figures of TTFT."""
    engine = Engine(Artifact.open(llama.artifact))
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    engine.add_request("r", random_prompt(40, seed=1), params)
    # 40 tokens in chunks of 16 take three steps.
    assert [engine.step(), engine.step()] == [[], []]
    second_chunk_ended = time.perf_counter()
    (first,) = engine.step()
    third_chunk_ended = time.perf_counter()
    assert first.result is None
    assert engine.step()[0].result is None
    result = engine.step()[0].result
    assert result is not None
    assert len(result.times.tokens) == len(result.outputs[0].token_ids) == 3
    assert second_chunk_ended < result.times.tokens[0] < third_chunk_ended
