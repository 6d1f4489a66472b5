"""Faults of request handling: the empty prompt, the batch that is not full, the early stop."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from conftest import Compiled
from tiny_models import load_reference, random_prompt, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import NoProgressError, RequestError
from neuron_llm.runtime.batch.batch import BatchOptions, run_batch
from neuron_llm.runtime.batch.prompt_line import parse_line
from neuron_llm.runtime.batch.records import OrderedRecordWriter
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.scheduler import HoldReason, NeuronScheduler, Request
from neuron_llm.scheduler.step_record import StepRecord

GREEDY_JOB = BatchOptions({"temperature": 0, "ignore_eos": True}, {}, include_token_ids=True)


@pytest.fixture(scope="module")
def loaded(llama: Compiled) -> LLM:
    return LLM(llama.artifact)


@pytest.fixture
def llm(loaded: LLM) -> Iterator[LLM]:
    """The model with an empty prefix cache; a test leaves no request behind."""
    assert loaded.engine.scheduler.reset_prefix_cache()
    yield loaded
    assert not loaded.engine.has_unfinished_requests()
    assert loaded.engine.scheduler.kv_cache_manager.num_free_blocks == 64


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
    sampler = llm.engine.runner.sampler
    monkeypatch.setattr(sampler, "eos_token_ids", (*sampler.eos_token_ids, favourite))
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


def run_job(engine: Engine, lines: list[dict[str, Any]], stream: io.BytesIO) -> None:
    """Run the lines of a batch job greedily, each to its full length."""
    items = (parse_line(json.dumps(line).encode(), n, n + 1) for n, line in enumerate(lines))
    run_batch(engine, items, OrderedRecordWriter(stream), GREEDY_JOB, lambda _: None)


def records_in(stream: io.BytesIO) -> list[Any]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_prompt_larger_than_the_whole_cache_is_an_error_line_and_the_others_finish(
    llm: LLM, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: a prompt that the model allows and the cache cannot hold blocks the job."""
    small = NeuronScheduler(replace(llm.engine.scheduler.config, num_blocks=9))
    monkeypatch.setattr(llm.engine.requests, "scheduler", small)
    prompts = [random_prompt(n, seed=n) for n in (20, 5, 40, 28, 1)]
    stream = io.BytesIO()
    run_job(llm.engine, [{"prompt": p, "max_tokens": 4} for p in prompts], stream)
    refused, *others = sorted(records_in(stream), key=lambda record: record["index"] != 2)
    assert refused["error"]["code"] == "kv_too_small"
    assert "needs 11 KV blocks and 8 are available" in refused["error"]["message"]
    del prompts[2]
    assert [record["token_ids"] for record in others] == [
        reference_tokens(reference, prompt, 4) for prompt in prompts
    ]


def test_a_line_deferred_for_ever_ends_the_job_with_the_reason_and_keeps_what_is_done(
    llm: LLM, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: one request is never admitted, and the job stands still and says nothing."""

    class DefersTheThird(NeuronScheduler):
        def _find_hold_reason(self, request: Request) -> HoldReason | None:
            return (
                HoldReason.KV if request.request_id == "2" else super()._find_hold_reason(request)
            )

    monkeypatch.setattr(
        llm.engine.requests, "scheduler", DefersTheThird(llm.engine.scheduler.config)
    )
    stream = io.BytesIO()
    lines = [{"prompt": [n + 1], "max_tokens": 3} for n in range(5)]
    with pytest.raises(NoProgressError, match="`2` waits: too few free KV blocks") as caught:
        run_job(llm.engine, lines, stream)
    assert "running [], waiting ['2', '3', '4'] of 3" in caught.value.message
    assert [record["token_ids"] for record in records_in(stream)] == [
        reference_tokens(reference, [n + 1], 3) for n in range(2)
    ]
    assert not llm.engine.has_unfinished_requests()
    again = llm.generate([[3]], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    assert list(again[0].outputs[0].token_ids) == reference_tokens(reference, [3], 3)


def test_an_id_in_use_is_refused_and_free_again_afterwards(llm: LLM, reference: Any) -> None:
    """The fault: a second request of the same id corrupts the first, or is never let go."""
    engine = llm.engine
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    for prompt, other in (([1, 2, 3], [9, 9]), ([4, 5], [1])):
        engine.add_request("same", prompt, params)
        results = []
        while engine.has_unfinished_requests():
            results += [output.result for output in engine.step() if output.result]
            if not results:
                with pytest.raises(
                    RequestError, match="an unfinished request has the id"
                ) as caught:
                    engine.add_request("same", other, params)
                assert caught.value.code == "duplicate_request_id"
        (result,) = results
        assert list(result.outputs[0].token_ids) == reference_tokens(reference, prompt, 5)
    engine.add_request("same", [1, 2, 3], params)
    engine.step()
    engine.abort_requests(["same"])
    engine.add_request("same", [7], params)
    while engine.has_unfinished_requests():
        (output,) = engine.step()
    assert output.result is not None
    assert list(output.result.outputs[0].token_ids) == reference_tokens(reference, [7], 5)


def test_two_lines_of_one_id_are_both_answered_where_nobody_has_refused_them(
    llm: LLM, reference: Any
) -> None:
    """The fault: the user's ids are the engine's, and one of two equal ones is lost."""
    prompts = [[1, 2], [3], [4, 5, 6]]
    stream = io.BytesIO()
    run_job(llm.engine, [{"id": "x", "prompt": p, "max_tokens": 4} for p in prompts], stream)
    records = records_in(stream)
    assert [(record["id"], record["index"]) for record in records] == [("x", n) for n in range(3)]
    assert [record["token_ids"] for record in records] == [
        reference_tokens(reference, prompt, 4) for prompt in prompts
    ]


def test_a_job_of_four_times_as_many_lines_as_slots_keeps_every_row_busy(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: throughput collapses as soon as there are more lines than slots."""
    steps: list[StepRecord] = []
    monkeypatch.setattr(llm.engine, "on_step", steps.append)
    lines = [{"prompt": [n, n + 1], "max_tokens": 17} for n in range(16)]
    run_job(llm.engine, lines, io.BytesIO())
    decodes = [step for step in steps if step.bucket.name.startswith("decode")]
    assert sum(step.num_seqs for step in decodes) == 16 * 16
    assert len(decodes) <= 1.1 * 16 * 16 / 4
