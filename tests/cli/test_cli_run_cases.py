"""Faults of batch jobs and chats as a user meets them: one line against the others, and ends."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from artifact_copy import copy_artifact
from cli_runner import Ended, run_cli
from conftest import Compiled
from manifest_edits import edit_manifest
from tokenizer_factory import byte_level_backend

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.cli.chat import stream_reply
from neuron_llm.runtime.chat import ChatSession
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.sampling.sampling_params import SamplingParams

RECORD_KEYS = {
    "id", "index", "text", "token_ids", "finish_reason", "stop_reason", "num_prompt_tokens",
    "num_cached_tokens", "num_output_tokens", "queue_ms", "ttft_ms", "e2el_ms", "error",
}  # fmt: skip


def run_lines(artifact: Path, lines: list[Any], *flags: object) -> Ended:
    """Run lines greedily, with their token ids."""
    path = Path("prompts.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    fixed = ("--artifact", artifact, "--temperature", 0, "--token-ids")
    return run_cli("run", "--prompts", path, *fixed, *flags)


def error_codes(ended: Ended) -> list[str | None]:
    return [record["error"] and record["error"]["code"] for record in ended.records]


def test_one_line_that_is_too_long_costs_the_nine_others_nothing(
    llama: Compiled, empty_state: Path
) -> None:
    """The fault: one bad prompt throws away the whole job."""
    lines: list[Any] = [{"prompt": f"hello {n}", "max_tokens": 4} for n in range(10)]
    good = [record["token_ids"] for record in run_lines(llama.artifact, lines).records]
    lines[4] = {"prompt": "x" * 80}
    ended = run_lines(llama.artifact, lines)
    assert ended.code == 3
    before, bad, behind = ended.records[:4], ended.records[4], ended.records[5:]
    assert error_codes(ended) == [None] * 4 + ["prompt_too_long"] + [None] * 5
    assert bad["error"]["message"].startswith("line 5: the prompt has 80 tokens")
    assert [record["token_ids"] for record in before + behind] == good[:4] + good[5:]


def test_results_and_errors_have_one_form(llama: Compiled, empty_state: Path) -> None:
    """The fault: two forms of error, one of which reads like a result."""
    message = {"role": "user", "content": "hi"}
    body = {"model": "any", "messages": [message], "max_tokens": 2, "verbosity": "low"}
    openai = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    lines: list[Any] = [
        {"custom_id": "a", **openai},
        {"prompt": ""},
        {"prompt_token_ids": []},
        *({"prompt": "hello", "max_tokens": wrong} for wrong in (0, -1, 1.5, "5")),
        {"prompt": "hello", "min_tokens": 5, "max_tokens": 4},
        [],
        {"prompt": "hello", "max_tokens": 3, "ignore_eos": True},
    ]
    ended = run_lines(llama.artifact, lines)
    assert error_codes(ended) == [
        None, "empty_prompt", "empty_prompt", *["invalid_sampling"] * 5, "not_an_object", None,
    ]  # fmt: skip
    assert [record["index"] for record in ended.records] == list(range(10))
    assert ended.records[0]["id"] == "a"
    for record in ended.records:
        is_error = record["error"] is not None
        assert set(record) == RECORD_KEYS - ({"token_ids"} if is_error else set())
        assert (record["text"] is None) == is_error
        if is_error:
            assert set(record["error"]) == {"code", "message"}
            assert all(map(record["error"].get, ("code", "message")))
    assert ended.records[9]["num_output_tokens"] == 3
    assert "warning: unknown field `verbosity` ignored in 1 line" in ended.stderr


def test_an_empty_prompt_is_one_bos_where_the_tokenizer_adds_it(
    llama: Compiled, empty_state: Path
) -> None:
    """The fault: whether an empty prompt ends the engine depends on the tokenizer."""
    tokenizer = json.loads(byte_level_backend(adds_bos=True).to_str())
    artifact = copy_artifact(llama.artifact, Path("copy"), {"tokenizer/tokenizer.json": tokenizer})
    lines = [{"prompt": ""}, {"prompt_token_ids": [262]}, {"prompt": "hi"}]
    ended = run_lines(artifact, lines, "--max-tokens", 3)
    empty, bos, neighbour = ended.records
    assert ended.code == 0
    assert (empty["num_prompt_tokens"], neighbour["num_prompt_tokens"]) == (1, 3)
    assert empty["token_ids"] == bos["token_ids"]


def test_the_line_that_ends_last_is_still_the_first_record(
    llama: Compiled, empty_state: Path
) -> None:
    """The fault: records in another order than their lines, which are then paired wrongly."""
    lines = [{"id": f"n{n}", "prompt": "hello", "max_tokens": n} for n in (40, 30, 20, 10, 5, 1)]
    records = run_lines(llama.artifact, lines, "--ignore-eos").records
    assert [record["index"] for record in records] == [0, 1, 2, 3, 4, 5]
    assert [record["id"] for record in records] == [line["id"] for line in lines]
    assert [record["num_output_tokens"] for record in records] == [40, 30, 20, 10, 5, 1]


def test_every_end_of_sequence_ends_the_output_and_none_is_text(
    llama: Compiled, empty_state: Path
) -> None:
    """The fault: only the first id of a list counts, and the reply runs on to its limit."""
    line = {"prompt": "hello", "max_tokens": 12}
    free = run_lines(llama.artifact, [line], "--ignore-eos").records[0]["token_ids"]
    assert len(set(free[:6])) > 3
    for last in (2, 4):
        content = {"eos_token_id": [271, free[last]]}
        name = "generation_config.json"
        artifact = copy_artifact(llama.artifact, Path(f"copy{last}"), {name: content})
        (record,) = run_lines(artifact, [line]).records
        end = free.index(free[last])
        assert record["token_ids"] == free[: end + 1]
        assert (record["finish_reason"], record["stop_reason"]) == ("stop", None)
        (without,) = run_lines(llama.artifact, [{**line, "max_tokens": end or 1}]).records
        assert record["text"] == (without["text"] if end else "")


def test_an_artifact_without_rows_for_its_limit_is_refused_before_any_prompt_is_read(
    llama: Compiled, empty_state: Path
) -> None:
    """The fault: more requests at once than the graphs have rows, noticed in the middle."""
    artifact = copy_artifact(llama.artifact, Path("copy"), {})
    edit_manifest(artifact, lambda manifest: manifest["settings"].update(max_num_seqs=8))
    ended = run_cli("run", "--prompts", "none.jsonl", "--artifact", artifact)
    assert (ended.code, ended.stdout) == (1, "")
    assert "lacks graphs: a decode step of 5 requests" in ended.stderr
    assert "none.jsonl" not in ended.stderr
    # The limit is the artifact's own: nobody can ask for another one.
    flag = run_cli("run", "--prompts", "none.jsonl", "--max-num-seqs", 8)
    assert flag.code == 2


def test_ctrl_c_within_a_reply_leaves_the_engine_free_and_the_conversation_right(
    llama: Compiled, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fault: Ctrl-C does nothing, or leaves blocks and a conversation behind that are wrong."""
    engine = Engine(Artifact.open(llama.artifact))
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    session = ChatSession(engine, params)
    step, num_steps = engine.step, 0

    def interrupted_step() -> Any:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return step()

    monkeypatch.setattr(engine, "step", interrupted_step)
    assert not stream_reply(session, "hi")
    assert num_steps == 5
    assert not engine.has_unfinished_requests()
    assert engine.scheduler.kv_cache_manager.num_free_blocks == 64
    shown = capsys.readouterr().out.removesuffix("\n")
    assert session.messages[-1] == {"role": "assistant", "content": shown}

    assert stream_reply(session, "go on")
    *before, reply = session.messages
    engine.scheduler.reset_prefix_cache()
    engine.add_request("again", engine.tokenizer.encode_messages(before), params)
    text = ""
    while engine.has_unfinished_requests():
        text += "".join(output.new_text for output in engine.step())
    assert reply["content"] == text
