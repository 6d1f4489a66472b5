"""Several completions of one prompt: what they are, in which order, and how they end."""

from __future__ import annotations

import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import Compiled
from engine_streams import async_copy
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import random_prompt

from neuron_llm import LLM, SamplingParams
from neuron_llm.errors import RequestError
from neuron_llm.runtime.batch.batch import BatchOptions, run_batch
from neuron_llm.runtime.batch.prompt_line import parse_line
from neuron_llm.runtime.batch.records import OrderedRecordWriter
from neuron_llm.runtime.chat import ChatSession
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.engine.outputs import RequestOutput
from neuron_llm.runtime.engine.parallel_sampling import ParallelSampling


def sampled(**fields: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 6, "ignore_eos": True, **fields})


@pytest.fixture(scope="module", params=["one step at a time", "a step ahead"])
def loaded(
    request: pytest.FixtureRequest, llama: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> LLM:
    if request.param == "one step at a time":
        return LLM(llama.artifact)
    return LLM(async_copy(llama.artifact, tmp_path_factory.mktemp("async") / "tiny"))


@pytest.fixture
def llm(loaded: LLM) -> Iterator[LLM]:
    """An engine in which a test leaves nothing behind."""
    assert loaded.engine.scheduler.reset_prefix_cache()
    yield loaded
    while loaded.engine.has_unfinished_requests():
        assert loaded.engine.step() == []
    kv = loaded.engine.scheduler.kv_cache_manager
    kv.check_integrity()
    assert kv.num_free_blocks == 64


def run_to_end(engine: Engine) -> dict[str, RequestOutput]:
    results: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.result is not None:
                assert output.result.request_id not in results
                results[output.result.request_id] = output.result
    return results


def test_completion_i_is_that_of_the_seed_plus_i(llm: LLM) -> None:
    prompt = random_prompt(9, seed=1)
    for n in (2, 3, 7):
        (output,) = llm.generate([prompt], sampled(n=n, seed=40))
        assert [completion.index for completion in output.outputs] == list(range(n))
        for index, completion in enumerate(output.outputs):
            (alone,) = llm.generate([prompt], sampled(seed=40 + index))[0].outputs
            assert completion.token_ids == alone.token_ids
            assert completion.text == alone.text
        assert len({completion.token_ids for completion in output.outputs}) == n


def test_without_a_seed_the_completions_differ(llm: LLM) -> None:
    (output,) = llm.generate([[1, 2, 3]], sampled(n=4, temperature=2))
    assert len({completion.token_ids for completion in output.outputs}) == 4


def test_completions_of_several_prompts_come_in_order(llm: LLM) -> None:
    prompts = [random_prompt(n, seed=n) for n in (5, 1, 20)]
    params = [sampled(n=n, seed=n, max_tokens=9 - 2 * n) for n in (1, 4, 2)]
    outputs = llm.generate(prompts, params)
    assert [len(output.outputs) for output in outputs] == [1, 4, 2]
    for prompt, output, one in zip(prompts, outputs, params, strict=True):
        assert output.prompt_token_ids == tuple(prompt)
        assert all(len(c.token_ids) == one.max_tokens for c in output.outputs)
        (alone,) = llm.generate([prompt], one)
        assert [c.token_ids for c in output.outputs] == [c.token_ids for c in alone.outputs]


def test_the_prefix_cache_computes_the_prompt_once(llm: LLM) -> None:
    steps: list[int] = []
    llm.engine.on_step = lambda step: steps.append(step.num_tokens if step.num_seqs == 1 else 0)
    (output,) = llm.generate([random_prompt(33, seed=5)], sampled(n=3, seed=1, max_tokens=1))
    llm.engine.on_step = lambda _: None
    # 33 tokens in chunks of 16, and then for each of the others the one behind the 8 full blocks.
    assert steps == [16, 16, 1, 1, 1]
    assert output.num_cached_tokens == 0


def test_the_prompt_is_scored_once_for_all_completions(llm: LLM) -> None:
    prompt = random_prompt(20, seed=6)
    (alone,) = llm.generate([prompt], sampled(prompt_logprobs=1, logprobs=1, seed=3))
    steps: list[str] = []
    llm.engine.on_step = lambda step: steps.append(step.bucket.name)
    params = sampled(n=3, prompt_logprobs=1, logprobs=1, seed=3, max_tokens=1)
    (output,) = llm.generate([prompt], params)
    llm.engine.on_step = lambda _: None
    assert output.prompt_logprobs == alone.prompt_logprobs
    assert all(len(completion.logprobs or ()) == 1 for completion in output.outputs)
    assert steps == ["decode_b4_c64"] * 5 + ["prefill_t8"] * 2


def test_times_hold_every_token_and_each_completion_has_its_own(llm: LLM) -> None:
    (output,) = llm.generate([[1, 2, 3]], sampled(n=3, seed=1, max_tokens=4))
    own = [at for completion in output.outputs for at in completion.token_times]
    assert list(output.times.tokens) == sorted(own) and len(own) == 12
    assert output.times.arrival <= min(own)


def test_each_piece_of_text_says_which_completion_it_belongs_to(llm: LLM) -> None:
    engine = llm.engine
    engine.add_request("r", random_prompt(9, seed=5), sampled(n=3, seed=8, max_tokens=12))
    pieces: dict[int, str] = defaultdict(str)
    results = []
    while engine.has_unfinished_requests():
        for output in engine.step():
            assert output.request_id == "r"
            pieces[output.index] += output.new_text
            results += [output.result] if output.result is not None else []
    (result,) = results
    assert [completion.text for completion in result.outputs] == [pieces[i] for i in range(3)]


def test_completions_that_end_at_different_times_give_one_result(llm: LLM) -> None:
    params = sampled(n=4, seed=2, max_tokens=30, stop_token_ids=list(range(0, 272, 9)))
    llm.engine.add_request("r", [1, 2, 3], params)
    results = run_to_end(llm.engine)
    assert list(results) == ["r"]
    lengths = [len(completion.token_ids) for completion in results["r"].outputs]
    assert len(set(lengths)) > 1
    assert "stop" in {completion.finish_reason for completion in results["r"].outputs}


def test_an_abort_ends_every_completion(llm: LLM) -> None:
    engine = llm.engine
    engine.add_request("r", random_prompt(9, seed=1), sampled(n=6, seed=1, max_tokens=40))
    engine.add_request("s", [1, 2, 3], sampled(max_tokens=3, seed=5))
    for _ in range(9):
        engine.step()
    (output,) = engine.abort_requests(["r", "unknown"])
    assert output.request_id == "r"
    assert [completion.index for completion in output.outputs] == list(range(6))
    assert {completion.finish_reason for completion in output.outputs} == {"abort"}
    assert engine.abort_requests(["r"]) == []
    assert list(run_to_end(engine)) in (["s"], [])


def test_an_abort_keeps_completions_that_have_ended(llm: LLM) -> None:
    engine = llm.engine
    params = sampled(n=4, seed=2, max_tokens=30, stop_token_ids=list(range(0, 272, 9)))
    whole = llm.generate([[1, 2, 3]], params)[0].outputs
    engine.add_request("r", [1, 2, 3], params)
    shortest = min(len(completion.token_ids) for completion in whole)
    while len(engine.scheduler.requests) == 4:
        engine.step()
    (output,) = engine.abort_requests(["r"])
    ended = [c for c in output.outputs if c.finish_reason == "stop"]
    assert ended and len(ended) < 4
    assert all(c == whole[c.index] for c in ended)
    assert len(ended[0].token_ids) == shortest


def test_an_id_belongs_to_one_request_at_a_time(llm: LLM) -> None:
    engine = llm.engine
    engine.add_request("r", [1, 2], sampled(n=2, seed=1))
    engine.add_request("one", [1, 2], sampled(seed=1))
    engine.add_request("0_one", [1, 2], sampled(seed=1))
    for request_id, n in (("r", 1), ("r", 2), ("one", 1), ("one", 2), ("0_one", 1), ("0_one", 3)):
        with pytest.raises(RequestError, match=f"has the id `{request_id}`") as raised:
            engine.add_request(request_id, [1, 2], sampled(n=n, seed=1))
        assert raised.value.code == "duplicate_request_id"
    assert len(engine.scheduler.requests) == 4
    assert set(run_to_end(engine)) == {"r", "one", "0_one"}
    engine.add_request("r", [1, 2], sampled(n=3, seed=1))
    assert len(run_to_end(engine)["r"].outputs) == 3


USER_IDS = {"x": 2, "0_x": 1, "1_x": 2, "0_0_x": 1, "00_x": 1, "_x": 1, "0_": 2, "": 2}


@pytest.mark.parametrize("order", [list(USER_IDS), list(USER_IDS)[::-1]])
def test_ids_that_look_like_completions_of_others_are_anyones(llm: LLM, order: list[str]) -> None:
    engine = llm.engine
    params = {i: sampled(n=USER_IDS[i], seed=10 * len(i), max_tokens=4) for i in order}
    alone = {i: llm.generate([[1, 2, 3]], params[i])[0].outputs for i in order}
    for request_id in order:
        engine.add_request(request_id, [1, 2, 3], params[request_id])
    assert len(engine.scheduler.requests) == sum(USER_IDS.values())
    results = run_to_end(engine)
    assert {i: results[i].outputs for i in order} == alone
    assert all(results[i].request_id == i for i in order)


def test_an_abort_of_an_id_that_looks_like_a_completion_ends_that_request_only(llm: LLM) -> None:
    engine = llm.engine
    engine.add_request("x", [1, 2, 3], sampled(n=2, seed=4))
    assert engine.abort_requests(["0_x", "1_x"]) == []
    engine.add_request("0_x", [1, 2, 3], sampled(seed=4))
    for _ in range(4):
        engine.step()
    (aborted,) = engine.abort_requests(["0_x"])
    assert aborted.request_id == "0_x"
    (output,) = run_to_end(engine).values()
    assert output.request_id == "x"
    assert [completion.finish_reason for completion in output.outputs] == ["length", "length"]


@given(
    st.dictionaries(st.text("01_x", max_size=4), st.integers(1, 12), max_size=8),
)
def test_no_two_completions_share_an_id(requests: dict[str, int]) -> None:
    ids = [i for r, n in requests.items() for i in ParallelSampling.sequence_ids(r, n)]
    assert len(ids) == len(set(ids)) == sum(requests.values())


def test_a_refused_request_leaves_nothing_behind(llm: LLM) -> None:
    with pytest.raises(RequestError) as raised:
        llm.generate([[1, 2], [3] * 64], sampled(n=3))
    assert raised.value.code == "prompt_too_long"
    assert not llm.engine.scheduler.has_unfinished_requests()


def test_a_completion_that_fails_makes_the_request_fail(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llm.engine
    choose = engine.runner.sampler.sample

    def poisoned(logits: torch.Tensor, rows: Any) -> list[int]:
        logits = logits.clone()
        for index, state in enumerate(rows):
            if state.request_id.startswith("1_"):
                logits[index] = math.nan
        return choose(logits, rows)

    monkeypatch.setattr(engine.runner.sampler, "sample", poisoned)
    bad, good = llm.generate([[1, 2], [3, 4]], [sampled(n=3, seed=1), sampled(seed=1)])
    assert [c.finish_reason for c in bad.outputs] == ["length", "error", "length"]
    assert bad.error is not None and "logits" in bad.error
    assert good.error is None


def test_after_an_exception_every_id_is_free_again(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llm.engine
    engine.add_request("r", [1, 2], sampled(n=3, seed=1))
    with monkeypatch.context() as patch:
        patch.setattr(engine.scheduler, "schedule", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    engine.add_request("r", [1, 2], sampled(n=2, seed=1))
    assert len(run_to_end(engine)["r"].outputs) == 2


def test_a_batch_cut_short_has_whole_records_only(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, stream, num_steps = llm.engine, io.BytesIO(), 0
    step = engine.step

    def interrupted_step() -> Any:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 25:
            raise KeyboardInterrupt
        return step()

    lines = (
        parse_line(
            json.dumps({"prompt": "hello", "n": 3, "max_tokens": 1 + index}).encode(), index, 1
        )
        for index in range(40)
    )
    monkeypatch.setattr(engine, "step", interrupted_step)
    options = BatchOptions({"seed": 1, "ignore_eos": True}, {})
    with pytest.raises(KeyboardInterrupt):
        run_batch(engine, lines, OrderedRecordWriter(stream), options, lambda _: None)
    monkeypatch.undo()
    assert not engine.scheduler.has_unfinished_requests()
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert 0 < len(records) < 40
    for record in records:
        assert [choice["index"] for choice in record["choices"]] == [0, 1, 2]
        assert {choice["finish_reason"] for choice in record["choices"]} == {"length"}
        assert record["num_output_tokens"] == 3 * (1 + record["index"])


def test_a_chat_takes_one_reply(llm: LLM) -> None:
    with pytest.raises(RequestError, match="`n` is 2, but a chat goes on from one reply"):
        ChatSession(llm.engine, sampled(n=2))


def test_ids_are_those_of_vllm() -> None:
    assert ParallelSampling.sequence_ids("r", 1) == ("r",)
    assert ParallelSampling.sequence_ids("r", 3) == ("0_r", "1_r", "2_r")
    assert ParallelSampling.sequence_ids("1_r", 1) == ("0_1_r",)
