"""Artifacts whose graphs give tokens, through the engine, the library and the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from artifact_copy import copy_artifact
from cli_runner import run_cli
from conftest import Compiled
from engine_streams import random_requests, run_stream
from greedy_artifact import greedy_copy, let_graphs_sample

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import ArtifactError, RequestError
from neuron_llm.runtime.chat import ChatSession
from neuron_llm.runtime.engine.loading import load_engine
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket

_STOPS = ("max_tokens", "stop", "stop_token_ids", "ignore_eos")


@pytest.fixture
def artifact(llama: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return greedy_copy(llama.artifact, tmp_path / "greedy")


def greedy_requests(seed: int) -> list[Any]:
    """Return a random stream of which nothing but the ends is anyone's choice."""
    requests = []
    for request in random_requests(seed, 64):
        ends = {name: getattr(request.params, name) for name in _STOPS}
        requests.append(
            dataclasses.replace(request, params=SamplingParams(temperature=0, **ends), abort=None)
        )
    return requests


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_streams_come_to_what_logits_give(
    async_scheduling: bool,
    reproducible: bool,
    llama: Compiled,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = EngineOptions(reproducible=reproducible)
    expected = []
    with_logits = load_engine(Artifact.open(llama.artifact), options)
    for seed in range(6):
        expected.append(run_stream(with_logits, greedy_requests(seed)))
    let_graphs_sample(monkeypatch)
    copy = greedy_copy(llama.artifact, tmp_path / "x", async_scheduling=async_scheduling)
    engine = load_engine(Artifact.open(copy), options)
    num_cached = 0
    for seed, want in enumerate(expected):
        found = run_stream(engine, greedy_requests(seed))
        for request_id, result in found.results.items():
            assert found.outcome(request_id) == want.outcome(request_id)
            num_cached += result.num_cached_tokens
    assert num_cached > 0


def test_a_token_that_does_not_exist_ends_its_request_and_no_other(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_decodes: list[Bucket] = []

    def break_the_second_row(bucket: Bucket, tokens: torch.Tensor) -> torch.Tensor:
        if bucket == DecodeBucket(2, 64):
            both_decodes.append(bucket)
            if len(both_decodes) == 2:
                tokens[1] = -7
        return tokens

    let_graphs_sample(monkeypatch, break_the_second_row)
    llm = LLM(artifact, self_test=False)
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    first, second = llm.generate([[1, 2, 3], [4, 5, 6]], params)
    assert first.error is None and len(first.outputs[0].token_ids) == 5
    assert second.error is not None
    assert second.error.endswith("token -7, outside the vocabulary (0 to 271)")
    assert len(second.outputs[0].token_ids) == 2
    (again,) = llm.generate([[4, 5, 6]], params)
    assert again.error is None


def test_the_library_is_greedy_unless_told_otherwise_and_refuses_what_it_is_told(
    artifact: Path, llama: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    (expected,) = LLM(llama.artifact).generate([[7, 8]], SamplingParams(temperature=0))
    let_graphs_sample(monkeypatch)
    llm = LLM(artifact)
    (output,) = llm.generate([[7, 8]])
    assert output.outputs[0].token_ids == expected.outputs[0].token_ids
    with pytest.raises(RequestError, match=r"`temperature` is 1\.0, which needs logits"):
        llm.generate([[7, 8]], SamplingParams())
    params = [SamplingParams(temperature=0), SamplingParams(temperature=0, logprobs=1)]
    with pytest.raises(RequestError, match="`logprobs` is 1, which needs logits"):
        llm.generate([[7, 8], [9]], params)
    assert not llm.engine.has_unfinished_requests()


def test_a_chat_is_refused_before_its_first_turn(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_graphs_sample(monkeypatch)
    engine = LLM(artifact).engine
    with pytest.raises(RequestError, match="`temperature` is 1"):
        ChatSession(engine, SamplingParams())
    result = run_cli("run", "--artifact", artifact, "--temperature", 0.5, stdin="hi\n")
    assert result.code == 1 and "`temperature` is 0.5, which needs logits" in result.stderr
    result = run_cli("run", "--artifact", artifact, "--max-tokens", 4, stdin="hi\n")
    assert result.code == 0 and result.stdout.strip()
    assert "its graphs take the most likely token: `temperature` is 0" in result.stderr


def test_a_batch_has_an_error_record_for_each_line_that_needs_logits(
    artifact: Path, llama: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: dict[str, Any] = {
        "temperature": 0.2,
        "repetition_penalty": 1.3,
        "presence_penalty": 1,
        "frequency_penalty": 1,
        "logit_bias": {"3": 4},
        "allowed_token_ids": [3],
        "bad_words": ["x"],
        "min_tokens": 1,
        "logprobs": 2,
        "prompt_logprobs": 0,
    }
    lines = [{"prompt": f"the line of {name}", name: value} for name, value in refused.items()]
    good = [{"prompt": "abc"}, {"prompt": "twenty characters and more"}]
    Path("prompts.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [good[0], *lines, good[1]])
    )
    plain = run_cli(
        "run", "--artifact", llama.artifact, "--prompts", "prompts.jsonl", "--temperature", 0
    )
    let_graphs_sample(monkeypatch)
    result = run_cli("run", "--artifact", artifact, "--prompts", "prompts.jsonl")
    assert result.code == 3
    records = result.records
    assert len(records) == len(refused) + 2
    for name, record in zip(refused, records[1:-1], strict=True):
        assert record["error"]["code"] == "needs_logits"
        assert f": `{name}` is " in record["error"]["message"]
        assert "compile without" in record["error"]["message"]
    assert [records[i]["text"] for i in (0, -1)] == [plain.records[i]["text"] for i in (0, -1)]


def test_the_models_own_temperature_gives_way_and_its_penalty_is_refused(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_graphs_sample(monkeypatch)
    config = {"temperature": 0.6, "top_p": 0.9, "top_k": 50}
    mild = copy_artifact(artifact, Path("mild"), {"generation_config.json": config})
    Path("prompts.jsonl").write_text('{"prompt": "abc"}\n')
    result = run_cli("run", "--artifact", mild, "--prompts", "prompts.jsonl")
    assert result.code == 0, result.stderr
    config = {"repetition_penalty": 1.1}
    strict = copy_artifact(artifact, Path("strict"), {"generation_config.json": config})
    result = run_cli("run", "--artifact", strict, "--prompts", "prompts.jsonl")
    assert "`repetition_penalty` is 1.1" in result.records[0]["error"]["message"]
    flags = ("--repetition-penalty", 1)
    result = run_cli("run", "--artifact", strict, "--prompts", "prompts.jsonl", *flags)
    assert result.code == 0, result.stderr


def test_golden_tokens_are_compared_as_they_are(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        let_graphs_sample(patch)
        Artifact.open(artifact).load()
    let_graphs_sample(monkeypatch, lambda _, tokens: tokens + 1)
    with pytest.raises(ArtifactError, match=r"`prefill_t8` gives token \d+ instead of"):
        Artifact.open(artifact).load()


def test_inspect_says_what_graphs_give(artifact: Path, llama: Compiled) -> None:
    assert "gives      the most likely tokens\n" in run_cli("inspect", artifact).stdout
    assert "gives      logits\n" in run_cli("inspect", llama.artifact).stdout
    settings = run_cli("inspect", artifact, "--json").document["settings"]
    assert settings["samples_greedily"] is True
