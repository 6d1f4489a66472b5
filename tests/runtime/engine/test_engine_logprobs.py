"""Log probabilities of outputs and prompts equal eager Hugging Face's, through compiled graphs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Compiled
from engine_streams import async_copy
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.runtime.engine.outputs import Logprob
from neuron_llm.scheduler import BucketSet
from neuron_llm.scheduler.step_record import StepRecord

TOLERANCE = 1e-4


def greedy(**fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0, ignore_eos=True, **fields)


class Case:
    """A compiled model beside its reference."""

    def __init__(self, artifact: Path, model: Path) -> None:
        self.llm = LLM(artifact)
        self.reference: Any = load_reference(model)

    def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Return `[num_tokens, vocab_size]`: what eager Hugging Face expects behind each token."""
        with torch.no_grad():
            logits = self.reference(torch.tensor([list(token_ids)])).logits[0]
        logprobs: torch.Tensor = logits.log_softmax(dim=-1)
        return logprobs


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def case(request: pytest.FixtureRequest) -> Case:
    compiled: Compiled = request.getfixturevalue(request.param)
    return Case(compiled.artifact, compiled.model)


@pytest.fixture(scope="module")
def llama_case(llama: Compiled) -> Case:
    return Case(llama.artifact, llama.model)


@pytest.fixture
def steps(llama_case: Case) -> Iterator[list[StepRecord]]:
    """The steps of one test, starting with an empty prefix cache."""
    engine = llama_case.llm.engine
    engine.scheduler.reset_prefix_cache()
    recorded: list[StepRecord] = []
    engine.on_step = recorded.append
    yield recorded
    engine.on_step = lambda _: None
    assert not engine.has_unfinished_requests()


def check_position(
    got: Mapping[int, Logprob], expected: torch.Tensor, token_id: int, count: int
) -> None:
    """Check one position: the token itself first, then the most likely ones."""
    assert next(iter(got)) == token_id
    assert got[token_id].logprob == pytest.approx(float(expected[token_id]), abs=TOLERANCE)
    others = [one for one in got.values() if one.rank <= count]
    assert sorted(one.rank for one in others) == list(range(1, count + 1))
    largest = expected.topk(count).values.tolist()
    by_rank = [one.logprob for one in sorted(others, key=lambda one: one.rank)]
    assert by_rank == pytest.approx(largest, abs=TOLERANCE)
    for other, one in got.items():
        assert one.logprob == pytest.approx(float(expected[other]), abs=TOLERANCE)
    assert len(got) == count + (got[token_id].rank > count)


def numbers(positions: Sequence[Mapping[int, Logprob] | None] | None) -> list[float]:
    """Return every log probability, in order."""
    return [one.logprob for position in positions or () for one in (position or {}).values()]


@pytest.mark.parametrize("count", [0, 1, 5, -1])
def test_logprobs_are_those_of_the_logits_before_any_processing(case: Case, count: int) -> None:
    params = SamplingParams(
        temperature=1.5,
        top_k=50,
        seed=4,
        logit_bias={7: 50, 8: -50},
        repetition_penalty=1.8,
        logprobs=count,
        max_tokens=8,
        ignore_eos=True,
    )
    for length in (1, 6, 20):
        prompt = random_prompt(length, seed=length)
        (output,) = case.llm.generate([prompt], params)[0].outputs
        expected = case.logprobs([*prompt, *output.token_ids])[length - 1 :]
        assert output.logprobs is not None and len(output.logprobs) == 8
        for position, (token_id, got) in enumerate(
            zip(output.token_ids, output.logprobs, strict=True)
        ):
            num_top = expected.shape[1] if count == -1 else count
            check_position(got, expected[position], token_id, num_top)
        own = [got[i].logprob for i, got in zip(output.token_ids, output.logprobs, strict=True)]
        assert output.cumulative_logprob == pytest.approx(sum(own))


def test_without_asking_there_are_no_log_probabilities(case: Case) -> None:
    output = case.llm.generate([[1, 2, 3]], greedy(max_tokens=2))[0]
    assert (output.outputs[0].logprobs, output.outputs[0].cumulative_logprob) == (None, None)
    assert output.prompt_logprobs is None


@pytest.mark.parametrize("count", [0, 3])
def test_prompt_logprobs_equal_eager_for_every_length_and_chunk(case: Case, count: int) -> None:
    lengths = (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 49, 63, 127, 128, 129, 159)
    for length in (n for n in lengths if n < case.llm.engine.scheduler.max_model_len):
        prompt = random_prompt(length, seed=length)
        result = case.llm.generate([prompt], greedy(max_tokens=2, prompt_logprobs=count))[0]
        assert list(result.outputs[0].token_ids) == reference_tokens(
            case.reference, prompt, len(result.outputs[0].token_ids)
        )
        assert result.prompt_logprobs is not None and len(result.prompt_logprobs) == length
        assert result.prompt_logprobs[0] is None
        expected = case.logprobs(prompt)
        for position in range(1, length):
            got = result.prompt_logprobs[position]
            assert got is not None
            check_position(got, expected[position - 1], prompt[position], count)


def test_prompt_logprobs_of_the_whole_vocabulary(llama_case: Case) -> None:
    result = llama_case.llm.generate([[5, 6, 7]], greedy(max_tokens=1, prompt_logprobs=-1))[0]
    assert result.prompt_logprobs is not None
    assert [None if p is None else len(p) for p in result.prompt_logprobs] == [None, 272, 272]


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_the_size_of_the_batch_changes_nothing(
    llama_case: Case, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    runner = llama_case.llm.engine.runner
    decode = tuple(b for b in runner.buckets.decode if b.batch_size <= batch_size)
    prompt = random_prompt(21, seed=1)
    monkeypatch.setattr(runner, "buckets", BucketSet(runner.buckets.prefill, decode))
    result = llama_case.llm.generate([prompt], greedy(max_tokens=4, prompt_logprobs=2))[0]
    assert result.prompt_logprobs is not None
    expected = llama_case.logprobs(prompt)
    for position in range(1, 21):
        got = result.prompt_logprobs[position]
        assert got is not None
        check_position(got, expected[position - 1], prompt[position], 2)
    assert list(result.outputs[0].token_ids) == reference_tokens(llama_case.reference, prompt, 4)


def test_a_scored_chunk_runs_through_decode_graphs_and_is_recorded_as_such(
    llama_case: Case, steps: list[StepRecord]
) -> None:
    llama_case.llm.generate([random_prompt(23, seed=2)], greedy(max_tokens=2, prompt_logprobs=0))
    # A chunk of 16 and one of 7, four tokens at a time, and the output's second token.
    assert [(step.bucket.name, step.num_tokens) for step in steps] == [
        *[("decode_b4_c64", 4)] * 4,
        ("decode_b4_c64", 4),
        ("decode_b4_c64", 3),
        ("decode_b1_c64", 1),
    ]
    assert steps[1].num_context_tokens == 5 + 6 + 7 + 8


def test_no_graph_is_needed_that_was_not_compiled(
    llama_case: Case, steps: list[StepRecord]
) -> None:
    compiled = {graph.name for graph in llama_case.llm.engine.artifact.manifest.graphs}
    params = greedy(max_tokens=3, prompt_logprobs=1, logprobs=1)
    llama_case.llm.generate([random_prompt(n, seed=n) for n in range(1, 40, 4)], params)
    assert {step.bucket.name for step in steps} <= compiled


def test_scored_prompts_among_others_change_nobody(llama_case: Case) -> None:
    prompts = [random_prompt(n, seed=n) for n in (30, 7, 19, 40, 3, 25)]
    scored, plain = greedy(max_tokens=6, prompt_logprobs=1, logprobs=1), greedy(max_tokens=6)
    llm = llama_case.llm
    alone = [llm.generate([p], scored)[0] for p in prompts]
    mixed = llm.generate(prompts, [scored, plain] * 3)
    for index, (one, other) in enumerate(zip(alone, mixed, strict=True)):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        assert list(one.outputs[0].token_ids) == reference_tokens(
            llama_case.reference, prompts[index], 6
        )
    assert alone[0].prompt_logprobs == mixed[0].prompt_logprobs
    assert alone[4].prompt_logprobs == mixed[4].prompt_logprobs


def test_a_prompt_whose_logits_are_no_numbers_fails_alone(
    llama_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = llama_case.llm.engine.runner.session
    execute = session.execute

    def poisoned(bucket: Any, inputs: Any) -> torch.Tensor:
        logits = execute(bucket, inputs)
        logits[inputs.input_ids[inputs.logits_indices] == 5] = math.nan
        return logits

    monkeypatch.setattr(session, "execute", poisoned)
    params = greedy(max_tokens=3, prompt_logprobs=0)
    # Token 5 is in the first chunk, far from where anything is sampled.
    bad, good = llama_case.llm.generate([[5, *[3] * 20], [1, 2, 3]], params)
    assert bad.outputs[0].finish_reason == "error"
    assert bad.error is not None and "logits" in bad.error
    assert good.error is None and good.prompt_logprobs is not None


def test_decoded_tokens_are_the_text(llama_case: Case) -> None:
    llm = llama_case.llm
    prompt = llm.engine.tokenizer.encode_part("한 hello")
    params = SamplingParams(
        max_tokens=12, ignore_eos=True, logprobs=0, prompt_logprobs=0,
        allowed_token_ids=llm.engine.tokenizer.encode_part("abc hello w"), seed=1,
    )  # fmt: skip
    result = llm.generate([prompt], params)[0]
    (output,) = result.outputs
    assert output.logprobs is not None and result.prompt_logprobs is not None
    texts = [got[i].decoded_token for i, got in zip(output.token_ids, output.logprobs, strict=True)]
    assert "".join(texts) == output.text
    prompt_texts = [
        got[token_id].decoded_token
        for token_id, got in zip(prompt, result.prompt_logprobs, strict=True)
        if got is not None
    ]
    assert prompt_texts == ["", "한", " hello"]


def test_an_engine_with_a_step_ahead_gives_the_same(
    llama: Compiled, llama_case: Case, tmp_path: Path
) -> None:
    ahead = LLM(async_copy(llama.artifact, tmp_path / "copy"))
    prompts = [random_prompt(n, seed=n) for n in (30, 7, 19, 40, 3)]
    params = [
        SamplingParams(
            temperature=temperature, seed=n, ignore_eos=True, max_tokens=9, logprobs=n % 3,
            prompt_logprobs=None if n == 2 else 1, repetition_penalty=1.3, frequency_penalty=0.5,
        )
        for n, temperature in enumerate((0, 0.7, 1, 0, 1.3))
    ]  # fmt: skip
    expected, got = llama_case.llm.generate(prompts, params), ahead.generate(prompts, params)
    for one, other in zip(got, expected, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        # Which other requests share a batch may differ, and with that a last bit.
        assert numbers(one.outputs[0].logprobs) == pytest.approx(
            numbers(other.outputs[0].logprobs), abs=TOLERANCE
        )
        assert numbers(one.prompt_logprobs) == pytest.approx(
            numbers(other.prompt_logprobs), abs=TOLERANCE
        )


def test_an_aborted_prompt_has_no_log_probabilities_yet(llama_case: Case) -> None:
    engine = llama_case.llm.engine
    engine.add_request("r", random_prompt(40, seed=1), greedy(prompt_logprobs=0, logprobs=0))
    engine.step()
    (output,) = engine.abort_requests(["r"])
    assert (output.prompt_logprobs, output.outputs[0].logprobs) == (None, ())
    assert engine.scheduler.kv_cache_manager.num_free_blocks == 64
