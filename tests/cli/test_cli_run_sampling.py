"""`neuron-llm run` with every sampling field: flags, lines, choices and log probabilities."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from artifact_copy import copy_artifact
from cli_runner import Ended, run_cli
from conftest import Compiled
from engine_streams import async_copy
from repository import DOCS

from neuron_llm import LLM, SamplingParams
from neuron_llm.cli.main import app


def run_lines(artifact: Path, lines: list[Any], *flags: object) -> Ended:
    path = Path("prompts.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run_cli("run", "--prompts", path, "--artifact", artifact, "--ignore-eos", *flags)


def test_the_page_lists_every_field_with_its_default_and_its_flag() -> None:
    page = (DOCS / "run.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| .* \| (?:`(--[\w-]+)`)? ?\|$", page, re.MULTILINE)
    defaults = dict(vars(SamplingParams()))
    assert defaults.pop("best_of") is None
    for name, value in defaults.items():
        empty: object = {} if name == "logit_bias" else []
        defaults[name] = empty if value == () else value
    assert {name: json.loads(default) for name, default, _ in rows} == defaults
    command = next(c for c in app.registered_commands if c.name == "run")
    assert command.callback is not None
    options = set(inspect.signature(command.callback).parameters)
    assert {flag.removeprefix("--").replace("-", "_") for _, _, flag in rows if flag} <= options


def test_flags_are_defaults_for_every_line(llama: Compiled, empty_state: Path) -> None:
    flags: list[object] = ["--seed", 3, "--min-p", 0.1, "--repetition-penalty", 1.5]
    flags += ["--presence-penalty", 0.5, "--frequency-penalty", -0.2, "--token-ids"]
    line = {"prompt": "hello", "max_tokens": 8}
    ended = run_lines(llama.artifact, [line, {**line, "repetition_penalty": 1.0}], *flags)
    assert ended.code == 0
    params = SamplingParams(
        seed=3, min_p=0.1, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=-0.2,
        max_tokens=8, ignore_eos=True,
    )  # fmt: skip
    (output,) = LLM(llama.artifact).generate(["hello"], params)
    first, second = ended.records
    assert first["token_ids"] == list(output.outputs[0].token_ids) != second["token_ids"]


def test_several_completions_are_one_record(llama: Compiled, empty_state: Path) -> None:
    lines = [
        {"prompt": "hello", "max_tokens": 4, "n": 3, "seed": 9},
        *({"prompt": "hello", "max_tokens": 4, "seed": seed} for seed in (9, 10, 11)),
        {"prompt": "hello", "max_tokens": 2, "n": 2, "temperature": 0},
    ]
    ended = run_lines(llama.artifact, lines, "--token-ids", "-o", "out.jsonl", "--json")
    assert ended.code == 3
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [record["index"] for record in records] == [0, 1, 2, 3, 4]
    several, *alone, refused = records
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2]
    for choice, one in zip(several["choices"], alone, strict=True):
        assert (choice["token_ids"], choice["text"]) == (one["token_ids"], one["text"])
    assert several["text"] == alone[0]["text"]
    assert several["num_output_tokens"] == 12
    assert refused["error"]["code"] == "invalid_sampling"
    summary = ended.document
    assert (summary["num_completed"], summary["num_failed"]) == (4, 1)
    assert summary["num_output_tokens"] == 24
    assert summary["num_prompt_tokens"] == sum(r["num_prompt_tokens"] for r in records[:4])


@pytest.mark.parametrize("is_async", [False, True])
def test_more_completions_than_slots_come_whole_and_in_order(
    llama: Compiled, empty_state: Path, tmp_path: Path, is_async: bool
) -> None:
    artifact = async_copy(llama.artifact, tmp_path / "copy") if is_async else llama.artifact
    lines = [{"prompt": f"hello {n}", "max_tokens": 1 + n, "seed": n} for n in range(9)]
    ended = run_lines(artifact, lines, "--n", 11, "--logprobs", 0)
    assert ended.code == 0
    assert [record["index"] for record in ended.records] == list(range(9))
    for number, record in enumerate(ended.records):
        assert len(record["choices"]) == 11
        for choice in record["choices"]:
            assert len(choice["logprobs"]["tokens"]) == 1 + number


def test_log_probabilities_have_the_form_of_the_line(llama: Compiled, empty_state: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "logprobs": True, "top_logprobs": 2, "max_tokens": 3}
    lines = [
        {"prompt": "hello", "max_tokens": 3},
        {"messages": messages, "max_tokens": 3},
        {"custom_id": "c", "url": "/v1/chat/completions", "body": body},
        {"prompt": "hello", "max_tokens": 3, "logprobs": False},
        {"messages": messages, "max_tokens": 3, "logprobs": 0, "prompt_logprobs": 1},
    ]
    ended = run_lines(llama.artifact, lines, "--logprobs", 4, "--temperature", 0)
    assert ended.code == 0
    text, chat, openai, none, scored = ended.records
    assert set(text["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert [len(text["logprobs"][name]) for name in sorted(text["logprobs"])] == [3] * 4
    assert text["logprobs"]["token_logprobs"][0] == max(
        text["logprobs"]["top_logprobs"][0].values()
    )
    for record, count in ((chat, 4), (openai, 2), (scored, 0)):
        assert [len(one["top_logprobs"]) for one in record["logprobs"]["content"]] == [count] * 3
    assert chat["logprobs"]["content"][0]["token"] == openai["logprobs"]["content"][0]["token"]
    assert "logprobs" not in none
    assert len(scored["prompt_logprobs"]) == scored["num_prompt_tokens"]
    assert scored["prompt_logprobs"][0] is None
    assert all(1 <= len(one) <= 2 for one in scored["prompt_logprobs"][1:])


def test_a_scored_prompt_is_in_the_summary_the_trace_and_the_report(
    llama: Compiled, empty_state: Path
) -> None:
    lines = [{"prompt": "hello world, hello world", "max_tokens": 3, "prompt_logprobs": 0}]
    flags = ("-o", "out.jsonl", "--json", "--trace-out", "trace.json", "--temperature", 0)
    ended = run_lines(llama.artifact, lines, *flags)
    total = ended.document["padding"]["total"]
    assert total["num_real_tokens"] == ended.document["num_prompt_tokens"] + 3 - 1
    trace = json.loads(Path("trace.json").read_text())
    graphs = [event for event in trace if event["ph"] == "X" and event["tid"] == 1]
    assert len(graphs) == total["num_uses"]
    assert {event["name"] for event in graphs} <= {
        "decode_b1_c64",
        "decode_b2_c64",
        "decode_b4_c64",
    }
    report = run_cli("bucket-report", "--artifact", llama.artifact, "--json").document
    assert report["total"] == total


def test_the_models_penalty_and_min_p_are_followed(llama: Compiled, empty_state: Path) -> None:
    model = {"repetition_penalty": 1.7, "min_p": 0.05}
    artifact = copy_artifact(llama.artifact, Path("copy"), {"generation_config.json": model})
    line = {"prompt": "hello", "max_tokens": 12, "seed": 1}
    ended = run_lines(artifact, [line], "--token-ids")
    explicit = run_lines(llama.artifact, [{**line, **model}], "--token-ids")
    neutral = run_lines(artifact, [{**line, "min_p": 0}], "--token-ids", "--repetition-penalty", 1)
    plain = run_lines(llama.artifact, [line], "--token-ids")
    assert "not followed" not in ended.stderr
    assert ended.records[0]["token_ids"] == explicit.records[0]["token_ids"]
    assert neutral.records[0]["token_ids"] == plain.records[0]["token_ids"]
    assert ended.records[0]["token_ids"] != plain.records[0]["token_ids"]


def test_tokens_that_the_model_does_not_have_are_that_lines_error(
    llama: Compiled, empty_state: Path
) -> None:
    lines = [
        {"prompt": "hello", "logit_bias": {"9999": 1}},
        {"prompt": "hello", "max_tokens": 2, "allowed_token_ids": [1, 2]},
        {"prompt": "hello", "n": 0},
        {"prompt": "hello", "best_of": 4},
    ]
    ended = run_lines(llama.artifact, lines)
    assert ended.code == 3
    codes = [record["error"] and record["error"]["code"] for record in ended.records]
    assert codes == ["invalid_sampling", None, "invalid_sampling", "unsupported_field"]
    message = ended.records[0]["error"]["message"]
    assert message == "line 1: `logit_bias` holds [9999], outside the vocabulary (0 to 271)"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--min-p", "1.5"], "`min_p` is 1.5, not a number in [0, 1]"),
        (["--repetition-penalty", "0"], "`repetition_penalty` is 0.0, not a finite number > 0"),
        (["--presence-penalty", "2.5"], "`presence_penalty` is 2.5, not a number in [-2, 2]"),
        (["--frequency-penalty", "-3"], "`frequency_penalty` is -3.0, not a number in [-2, 2]"),
        (["--n", "0"], "`n` is 0, not an integer from 1 to 16384"),
        (["--n", "2", "--temperature", "0"], "`n` is 2, but with `temperature` 0"),
        (["--logprobs", "-2"], "`logprobs` is -2, not an integer >= -1"),
    ],
)
def test_flags_out_of_range_are_usage_errors(
    llama: Compiled, empty_state: Path, flags: list[str], message: str
) -> None:
    ended = run_cli("run", "--prompts", "x.jsonl", "--artifact", llama.artifact, *flags)
    assert (ended.code, ended.stdout) == (2, "")
    assert message in ended.stderr


@pytest.mark.parametrize("flag", ["--n", "--logprobs"])
def test_a_chat_has_no_choices_and_no_log_probabilities(
    llama: Compiled, empty_state: Path, flag: str
) -> None:
    ended = run_cli("run", "--artifact", llama.artifact, flag, 1, stdin="hi\n")
    assert (ended.code, ended.stdout) == (2, "")
    assert f"`{flag}` works only with `--prompts`" in ended.stderr


def test_a_chat_follows_the_penalties(llama: Compiled, empty_state: Path) -> None:
    run = ("run", "--artifact", llama.artifact, "--temperature", 0, "--max-tokens", 12)
    plain = run_cli(*run, "--ignore-eos", stdin="hi\n")
    changed = run_cli(*run, "--ignore-eos", "--repetition-penalty", 3, stdin="hi\n")
    assert (plain.code, changed.code) == (0, 0)
    assert plain.stdout != changed.stdout
