"""The engine: ends of requests, limits, refusals, and steps that stay inside the manifest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import Compiled
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.errors import RequestError
from neuron_llm.scheduler.step_record import StepRecord


def greedy(**fields: Any) -> SamplingParams:
    """Return parameters of a greedy request that its end of sequence does not end."""
    return SamplingParams(temperature=0, ignore_eos=True, **fields)


@pytest.fixture(scope="module")
def llm(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture(scope="module")
def reference(llama: Compiled) -> Any:
    return load_reference(llama.model)


@pytest.fixture
def steps(llm: LLM) -> Iterator[list[StepRecord]]:
    """The steps of one test, starting with an empty prefix cache."""
    llm.engine.scheduler.reset_prefix_cache()
    recorded: list[StepRecord] = []
    llm.engine.on_step = recorded.append
    yield recorded
    llm.engine.on_step = lambda _: None
    assert not llm.engine.has_unfinished_requests()


def test_a_prompt_of_63_of_64_tokens_yields_one_token(
    llm: LLM, reference: Any, steps: list[StepRecord]
) -> None:
    prompt = random_prompt(63, seed=0)
    output = llm.generate([prompt], greedy(max_tokens=10))[0].outputs[0]
    assert output.finish_reason == "length"
    assert list(output.token_ids) == reference_tokens(reference, prompt, 1)
    assert [step.bucket.name for step in steps] == ["prefill_t16"] * 4


@pytest.mark.parametrize("length", [61, 62])
def test_output_ends_where_the_context_does(llm: LLM, reference: Any, length: int) -> None:
    prompt = random_prompt(length, seed=length)
    output = llm.generate([prompt], greedy(max_tokens=None))[0].outputs[0]
    assert list(output.token_ids) == reference_tokens(reference, prompt, 64 - length)
    assert output.finish_reason == "length"


def test_a_prompt_that_fills_the_context_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="64 tokens") as caught:
        llm.generate([random_prompt(64, seed=0)], greedy())
    assert caught.value.code == "prompt_too_long"
    assert not llm.engine.has_unfinished_requests()


def test_a_refused_prompt_takes_back_the_others_of_its_call(llm: LLM) -> None:
    with pytest.raises(RequestError):
        llm.generate([[1, 2], [3] * 64], greedy())
    assert not llm.engine.has_unfinished_requests()
    assert llm.engine.scheduler.kv_cache_manager.num_free_blocks == 64


@pytest.mark.parametrize("token_id", [-1, 272, 10**12])
def test_a_token_outside_the_vocabulary_is_refused(llm: LLM, token_id: int) -> None:
    with pytest.raises(RequestError, match="outside the vocabulary") as caught:
        llm.generate([[1, token_id]], SamplingParams())
    assert caught.value.code == "invalid_token_id"


def test_a_full_chunk_gives_the_reference_first_token(
    llm: LLM, reference: Any, steps: list[StepRecord]
) -> None:
    prompt = random_prompt(16, seed=3)
    output = llm.generate([prompt], greedy(max_tokens=1))[0].outputs[0]
    assert list(output.token_ids) == reference_tokens(reference, prompt, 1)
    assert [step.bucket.name for step in steps] == ["prefill_t16"]


def test_one_waiting_prompt_is_decoded_in_the_bucket_of_one_row(
    llm: LLM, steps: list[StepRecord]
) -> None:
    llm.generate([[1, 2, 3]], greedy(max_tokens=3))
    assert [s.bucket.name for s in steps] == ["prefill_t8", "decode_b1_c64", "decode_b1_c64"]


def test_no_shape_outside_the_manifest_runs(llm: LLM, steps: list[StepRecord]) -> None:
    compiled = {graph.name for graph in llm.engine.artifact.manifest.graphs}
    prompts = [random_prompt(n, seed=n) for n in range(1, 50, 3)]
    llm.generate(prompts, [SamplingParams(max_tokens=1 + n % 7) for n in range(len(prompts))])
    llm.generate(prompts[:2], greedy(max_tokens=4))
    assert {step.bucket.name for step in steps} == compiled


def test_a_prefill_budget_does_not_bound_the_decode_batch(
    llm: LLM, steps: list[StepRecord]
) -> None:
    llm.generate([[n] for n in range(4)], greedy(max_tokens=12))
    assert max(step.num_seqs for step in steps) == 4


def test_a_stop_token_ends_the_output_and_is_not_text(llm: LLM, reference: Any) -> None:
    prompt = random_prompt(5, seed=9)
    tokens = reference_tokens(reference, prompt, 6)
    params = greedy(max_tokens=6, stop_token_ids=[tokens[3]])
    output = llm.generate([prompt], params)[0].outputs[0]
    first = tokens.index(tokens[3])
    assert list(output.token_ids) == tokens[: first + 1]
    assert (output.finish_reason, output.stop_reason) == ("stop", tokens[3])
    assert output.text == llm.engine.tokenizer.decode(tokens[:first])


def test_end_of_sequence_from_any_source_ends_the_output(llm: LLM, reference: Any) -> None:
    prompt = random_prompt(5, seed=9)
    tokens = reference_tokens(reference, prompt, 6)
    sampler = llm.engine.runner.sampler
    before = sampler.eos_token_ids
    sampler.eos_token_ids = (*before, tokens[2])
    try:
        output = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=6))[0].outputs[0]
    finally:
        sampler.eos_token_ids = before
    assert list(output.token_ids) == tokens[: tokens.index(tokens[2]) + 1]
    assert (output.finish_reason, output.stop_reason) == ("stop", None)


def test_min_tokens_masks_the_stop_token_until_then(llm: LLM, reference: Any) -> None:
    prompt = random_prompt(5, seed=9)
    stop = reference_tokens(reference, prompt, 1)[0]
    params = greedy(max_tokens=8, min_tokens=5, stop_token_ids=[stop])
    output = llm.generate([prompt], params)[0].outputs[0]
    assert stop not in output.token_ids[:5]
    assert len(output.token_ids) >= 5


def test_a_stop_string_ends_the_output_before_it(llm: LLM) -> None:
    prompt = random_prompt(7, seed=4)
    plain = llm.generate([prompt], greedy(max_tokens=12))[0].outputs[0]
    stop = plain.text[4:6]
    params = greedy(max_tokens=12, stop=[stop])
    output = llm.generate([prompt], params)[0].outputs[0]
    assert output.text == plain.text[: plain.text.index(stop)]
    assert (output.finish_reason, output.stop_reason) == ("stop", stop)
    assert len(output.token_ids) < 12


def test_pieces_joined_are_the_text(llm: LLM) -> None:
    llm.engine.add_request("r", random_prompt(9, seed=5), greedy(max_tokens=20))
    pieces, text = [], ""
    while llm.engine.has_unfinished_requests():
        for output in llm.engine.step():
            pieces.append(output.new_text)
            if output.result is not None:
                text = output.result.outputs[0].text
    assert "".join(pieces) == text != ""


def test_a_seeded_request_does_not_depend_on_its_neighbours(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, top_p=0.9, seed=11, max_tokens=8, ignore_eos=True)
    prompt = random_prompt(6, seed=6)
    alone = llm.generate([prompt], params)[0].outputs[0].token_ids
    others = [random_prompt(n, seed=n) for n in (3, 17, 30)]
    crowd = llm.generate([*others, prompt], [SamplingParams(max_tokens=8)] * 3 + [params])
    assert crowd[3].outputs[0].token_ids == alone


def test_a_request_whose_logits_are_no_numbers_fails_alone(
    llm: LLM, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = llm.engine.runner.session
    execute = session.execute

    def poisoned(bucket: Any, inputs: Any) -> torch.Tensor:
        logits = execute(bucket, inputs)
        logits[inputs.input_ids[inputs.logits_indices] == 5] = math.nan
        return logits

    monkeypatch.setattr(session, "execute", poisoned)
    good, bad = llm.generate([[1, 2, 3], [3, 4, 5]], greedy(max_tokens=4))
    assert list(good.outputs[0].token_ids) == reference_tokens(reference, [1, 2, 3], 4)
    assert bad.outputs[0].finish_reason == "error"
    assert bad.error is not None and "logits" in bad.error


def test_an_aborted_request_gives_back_its_blocks(llm: LLM) -> None:
    engine = llm.engine
    engine.add_request("a", random_prompt(20, seed=1), greedy(max_tokens=30))
    engine.step()
    (output,) = engine.abort_requests(["a"])
    assert output.outputs[0].finish_reason == "abort"
    assert engine.scheduler.kv_cache_manager.num_free_blocks == 64
    assert engine.abort_requests(["a"]) == []
