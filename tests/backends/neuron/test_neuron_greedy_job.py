"""Graphs that sample on the device: compiled, verified, loaded and run.

By the trace binding; `test_neuron_job.py` has them by the other, in new processes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from neuron_doubles import use_doubles
from neuron_job import (
    CONFIG,
    NUM_TOKENS,
    PROMPTS,
    SAMPLING,
    EagerAnswer,
    eager_answers,
    neuron_llm,
    read_records,
    write_lines,
)

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.load_request import load_request
from neuron_llm.artifact.manifest import Manifest, read_manifest
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.backends.neuron.trace.trace_session import TraceSession
from neuron_llm.backends.protocol import Session
from neuron_llm.backends.registry import get_backend
from neuron_llm.compile.verify.cases import Lengths
from neuron_llm.compile.verify.reference import Reference
from neuron_llm.compile.verify.verification import Verifier
from neuron_llm.errors import CompileError, RequestError
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket

ENDS: dict[str, Any] = {"max_tokens": NUM_TOKENS, "ignore_eos": True}
REFUSED: dict[str, Any] = {
    "temperature": 0.7,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"7": 3},
    "allowed_token_ids": [1, 2],
    "bad_words": ["no"],
    "min_tokens": 2,
    "logprobs": 1,
    "prompt_logprobs": 1,
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, llama_model: Path) -> Path:
    """A directory in which the configuration has been compiled."""
    path = tmp_path_factory.mktemp("greedy")
    (path / "tiny.yaml").write_text(CONFIG.format(model=llama_model) + SAMPLING)
    lines = [{"id": str(i), "prompt": prompt, **ENDS} for i, prompt in enumerate(PROMPTS)]
    write_lines(path / "prompts.jsonl", lines)
    ended = neuron_llm("compile", "tiny.yaml", "--cache-dir", path / "cache", directory=path)
    assert ended.code == 0, ended.stderr
    return path


@pytest.fixture
def artifact(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_doubles(monkeypatch)
    return directory / "artifacts" / "tiny"


@pytest.fixture(scope="module")
def expected(llama_model: Path) -> list[EagerAnswer]:
    return eager_answers(llama_model)


def assert_answers(records: dict[str, Any], expected: list[EagerAnswer]) -> None:
    for index, answer in enumerate(expected):
        record = records[str(index)]
        assert record["token_ids"] == answer.token_ids
        assert record["text"] == answer.text
        assert record["finish_reason"] == "length"


@pytest.mark.parametrize("flags", [(), ("--reproducible",)])
def test_the_tokens_are_those_of_eager_hugging_face(
    flags: tuple[str, ...], directory: Path, expected: list[EagerAnswer]
) -> None:
    ended = neuron_llm(
        *("run", "--prompts", "prompts.jsonl", "--output", "out.jsonl", "--token-ids", "--force"),
        *flags,
        directory=directory,
    )
    assert ended.code == 0, ended.stderr
    assert "its graphs take the most likely token" in ended.stderr
    assert_answers(read_records(directory / "out.jsonl"), expected)


def test_every_graph_was_verified_on_its_tokens(directory: Path) -> None:
    manifest = json.loads((directory / "artifacts" / "tiny" / "manifest.json").read_text())
    assert manifest["settings"]["samples_greedily"] is True
    for graph in manifest["graphs"]:
        verdict = graph["verification"]
        assert verdict["worst_error"] == 0
        assert verdict["num_tokens_equal"] == verdict["num_tokens"] > 0
    assert set(manifest["golden"]["tokens"]) >= {graph["name"] for graph in manifest["graphs"]}


def test_a_line_that_needs_logits_is_an_error_record_and_the_others_run(
    directory: Path, expected: list[EagerAnswer]
) -> None:
    lines = [{"id": name, "prompt": "x", name: value} for name, value in REFUSED.items()]
    good = {"id": "good", "prompt": PROMPTS[1], **ENDS}
    write_lines(directory / "mixed.jsonl", [*lines[:5], good, *lines[5:]])
    ended = neuron_llm(
        *("run", "--prompts", "mixed.jsonl", "--output", "mixed-out.jsonl", "--token-ids"),
        directory=directory,
    )
    assert ended.code == 3
    records = read_records(directory / "mixed-out.jsonl")
    assert records.pop("good")["token_ids"] == expected[1].token_ids
    assert list(records) == list(REFUSED)
    for name, record in records.items():
        assert record["error"]["code"] == "needs_logits"
        assert f"`{name}` is " in record["error"]["message"]


def test_a_chat_runs_without_flags_and_not_with_a_temperature(directory: Path) -> None:
    ended = neuron_llm("run", "--max-tokens", "4", directory=directory, stdin="hi\n")
    assert ended.code == 0, ended.stderr
    assert ended.stdout.strip()
    ended = neuron_llm("run", "--temperature", "1", directory=directory, stdin="hi\n")
    assert ended.code == 1
    assert "`temperature` is 1.0, which needs logits" in ended.stderr


def test_the_library_runs_it(artifact: Path, expected: list[EagerAnswer]) -> None:
    llm = LLM(artifact)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0, **ENDS))
    assert [list(output.outputs[0].token_ids) for output in outputs] == [
        answer.token_ids for answer in expected
    ]
    with pytest.raises(RequestError, match="`prompt_logprobs` is 0, which needs logits"):
        llm.generate(PROMPTS, SamplingParams(temperature=0, prompt_logprobs=0))


@pytest.fixture
def loaded(artifact: Path) -> Iterator[tuple[Session, Manifest]]:
    manifest = read_manifest(artifact)
    yield get_backend("neuron").load(load_request(artifact, manifest)), manifest


@pytest.mark.parametrize("fault", ["none", "argmax off by one", "wrong row"])
def test_a_wrong_choice_on_the_device_is_found_by_verification(
    fault: str,
    loaded: tuple[Session, Manifest],
    llama_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, manifest = loaded
    run = TraceSession.execute

    def execute(self: TraceSession, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        tokens = run(self, bucket, inputs)
        assert tokens.dtype == torch.int32 and tokens.dim() == 1
        return {"none": tokens, "argmax off by one": tokens + 1}.get(fault, tokens.flip(0))

    monkeypatch.setattr(TraceSession, "execute", execute)
    settings = manifest.settings
    verifier = Verifier(
        session,
        Reference(llama_model, torch.float32),
        manifest.buckets,
        Lengths(settings.max_model_len, settings.block_size, settings.num_blocks - 1),
        dtype=settings.dtype,
        samples_greedily=settings.samples_greedily,
    )
    bucket = DecodeBucket(2, 64)
    if fault == "none":
        assert verifier.verify(bucket).worst_error == 0
        return
    with pytest.raises(CompileError, match=r"graph `decode_b2_c64` is not what the model computes"):
        verifier.verify(bucket)
