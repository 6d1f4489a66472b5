"""`run --trace-out` and the log of `--verbose`: what each step did and why somebody waited."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cli_runner import run_cli, run_cli_process
from conftest import Compiled
from engine_streams import async_copy

PROMPTS = [{"prompt": f"hello {number}", "max_tokens": 4} for number in range(9)]


@pytest.fixture
def prompts(empty_state: Path) -> Path:
    path = empty_state / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in PROMPTS))
    return path


def read_trace(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())
    return events


@pytest.mark.parametrize("is_async", [False, True])
def test_trace_holds_every_step_and_request_of_the_run(
    llama: Compiled, prompts: Path, tmp_path: Path, is_async: bool
) -> None:
    artifact = async_copy(llama.artifact, tmp_path / "copy") if is_async else llama.artifact
    ended = run_cli(
        *("run", "--prompts", prompts, "-o", "out.jsonl", "--trace-out", "trace.json", "--json"),
        *("--artifact", artifact, "--temperature", 0, "--ignore-eos"),
    )
    assert ended.code == 0
    trace = read_trace(Path("trace.json"))
    steps = [event for event in trace if event["ph"] == "X" and event["tid"] == 1]
    padding = ended.document["padding"]["total"]
    assert len(steps) == padding["num_uses"]
    assert sum(s["args"]["num_real_tokens"] for s in steps) == padding["num_real_tokens"]
    assert sum(s["args"]["num_padded_tokens"] for s in steps) == padding["num_padded_tokens"]
    assert {s["args"]["held_back"] for s in steps} > {"all `max_num_seqs` slots are taken"}
    for phase in "bne":
        assert sorted(e["id"] for e in trace if e["ph"] == phase) == [str(i) for i in range(9)]
    host = {event["name"] for event in trace if event["ph"] == "X" and event["tid"] > 1}
    assert host == {"schedule", "prepare", "sample", "update", "publish"}
    check_no_overlap(trace)


def check_no_overlap(trace: list[dict[str, Any]]) -> None:
    """Assert that the events of a track follow each other: viewers drop one of two that overlap."""
    for track in {event["tid"] for event in trace if event["ph"] == "X"}:
        spans = [
            (e["ts"], e["ts"] + e["dur"]) for e in trace if e["ph"] == "X" and e["tid"] == track
        ]
        for before, after in pairwise(sorted(spans)):
            assert after[0] >= before[1] - 0.001, (track, before, after)


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("name", ["prompts", "output"])
def test_trace_replaces_neither_prompts_nor_records(
    llama: Compiled, prompts: Path, name: str, is_link: bool
) -> None:
    before = prompts.read_text()
    output = Path("out.jsonl")
    output.write_text("records of an earlier run\n")
    trace = prompts if name == "prompts" else output
    if is_link:
        Path("trace.json").symlink_to(trace)
        trace = Path("trace.json")
    ended = run_cli(
        *("run", "--prompts", prompts, "-o", output, "--force", "--trace-out", trace),
        *("--artifact", llama.artifact),
    )
    assert ended.code == 1
    assert f"`{trace}` is the {name} file itself" in ended.stderr
    assert prompts.read_text() == before
    assert output.read_text() == "records of an earlier run\n"


def test_trace_needs_prompts(llama: Compiled, empty_state: Path) -> None:
    ended = run_cli("run", "--trace-out", "trace.json", "--artifact", llama.artifact)
    assert ended.code == 2
    assert "`--trace-out` works only with `--prompts`" in ended.stderr
    assert not Path("trace.json").exists()


def test_trace_that_cannot_be_written_is_an_error_before_loading(
    llama: Compiled, prompts: Path
) -> None:
    ended = run_cli(
        *("run", "--prompts", prompts, "--trace-out", "nowhere/trace.json"),
        *("--artifact", llama.artifact),
    )
    assert ended.code == 1
    assert "cannot write `nowhere/trace.json`" in ended.stderr
    assert "loaded" not in ended.stderr


def test_verbose_logs_every_step_to_stderr(llama: Compiled, prompts: Path) -> None:
    ended = run_cli_process(
        *("run", "--prompts", prompts, "-o", "out.jsonl", "--artifact", llama.artifact, "-v")
    )
    lines = [line for line in ended.stderr.splitlines() if "free blocks" in line]
    assert any("decode_b4_c64" in line and "active_decode" in line for line in lines)
    assert any("waiting 4 (all `max_num_seqs` slots are taken)" in line for line in lines)
    assert ended.stdout == ""
