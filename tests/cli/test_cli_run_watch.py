"""`neuron-llm run` says what stands still, what cannot work, and how long somebody waited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from artifact_copy import copy_artifact
from cli_runner import Ended, run_cli
from conftest import Compiled
from manifest_edits import edit_manifest

from neuron_llm.scheduler import HoldReason, NeuronScheduler, Request

NO_HITS = "warning: prefix caching could not hit: no prompt (at most {} tokens) spans a full block"


def run_lines(artifact: Path, lines: list[dict[str, Any]], *flags: object) -> Ended:
    path = Path("prompts.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = ("run", "--prompts", path, "--artifact", artifact, "--ignore-eos", "--temperature", 0)
    return run_cli(*run, *flags)


@pytest.mark.parametrize(
    ("lengths", "longest"),
    [([3, 4], 4), ([1] * 5, 1), ([3, 5], None), ([3], None)],
)
def test_prompts_that_fill_no_block_are_a_warning(
    llama: Compiled, empty_state: Path, lengths: list[int], longest: int | None
) -> None:
    """The fault: prefix caching is on, never hits, and nothing says why."""
    ended = run_lines(llama.artifact, [{"prompt": [7] * n, "max_tokens": 2} for n in lengths])
    assert ended.code == 0
    # Blocks hold four tokens, and a prompt's last token is always computed.
    assert ("could not hit" in ended.stderr) == (longest is not None)
    if longest is not None:
        assert NO_HITS.format(longest) + " of 4 tokens and one more" in ended.stderr


def test_without_prefix_caching_there_is_nothing_to_warn_of(
    llama: Compiled, empty_state: Path
) -> None:
    artifact = copy_artifact(llama.artifact, Path("copy"), {})
    edit_manifest(artifact, lambda m: m["settings"].update(enable_prefix_caching=False))
    ended = run_lines(artifact, [{"prompt": [7], "max_tokens": 2}] * 3)
    assert ended.code == 0
    assert "prefix caching" not in ended.stderr


def test_a_job_that_stands_still_ends_with_the_queue_and_the_reason(
    llama: Compiled, empty_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: one request is never admitted, and the command runs on without a word."""
    find = NeuronScheduler._find_hold_reason

    def defer_one(self: NeuronScheduler, request: Request) -> HoldReason | None:
        return HoldReason.KV if request.request_id == "2" else find(self, request)

    monkeypatch.setattr(NeuronScheduler, "_find_hold_reason", defer_one)
    ended = run_lines(llama.artifact, [{"prompt": [n + 1], "max_tokens": 3} for n in range(4)])
    assert ended.code == 1
    assert [record["index"] for record in ended.records] == [0, 1]
    assert "error: nothing can be scheduled and no step is in flight; `2` waits: " in ended.stderr
    assert "running [], waiting ['2', '3'] of 2" in ended.stderr


def test_the_longest_gap_between_two_tokens_is_told(llama: Compiled, empty_state: Path) -> None:
    """The fault: prompts keep a decode waiting, and no figure shows for how long."""
    lines = [{"prompt": [n + 1] * 40, "max_tokens": 9} for n in range(6)]
    document = run_lines(llama.artifact, lines, "-o", "out.jsonl", "--json").document
    assert document["itl_ms"]["max"] >= document["itl_ms"]["p99"] > 0
    assert document["itl_ms"]["max"] <= document["e2el_ms"]["max"]
    summary = run_lines(llama.artifact, lines, "-o", "out.jsonl", "--force").stderr
    header = next(line for line in summary.splitlines() if line.startswith("ms "))
    assert header.split() == ["ms", "mean", "p50", "p90", "p99", "max"]


@pytest.mark.parametrize("limit", [1, 3])
def test_the_bound_of_an_artifact_bounds_how_long_a_decode_waits_for_prompts(
    llama: Compiled, empty_state: Path, limit: int
) -> None:
    """The fault: the bound of the configuration does not reach the scheduler."""
    artifact = copy_artifact(llama.artifact, Path("copy"), {})
    edit_manifest(artifact, lambda m: m["settings"].update(max_consecutive_prefills=limit))
    # One decodes from the third step on, while the others come in, each in three chunks.
    lines = [{"prompt": [n + 1] * 40, "max_tokens": 1} for n in range(12)]
    lines[0]["max_tokens"] = 20
    ended = run_lines(artifact, lines, "-o", "out.jsonl", "--trace-out", "trace.json")
    assert ended.code == 0
    trace = json.loads(Path("trace.json").read_text())
    graphs = [e["name"] for e in trace if e["ph"] == "X" and e["tid"] == 1][3:]
    phases = "".join("d" if name.startswith("decode") else "p" for name in graphs)
    # What comes after its last token keeps nobody waiting.
    assert max(map(len, phases.split("d")[:-1])) == limit
