"""Faults of reports, against the whole command: figures that nobody can trust or find."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli_runner import run_cli
from conftest import Compiled

from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.runtime.run_log import last_run_path

PROMPTS = [[5] * 3, [5] * 9 + [6], [7] * 20, [5] * 12 + [8, 9]]
SUMS = (
    "num_uses",
    "num_real_tokens",
    "num_length_padded_tokens",
    "num_row_padded_tokens",
    "num_cached_tokens",
    "num_context_padded_tokens",
)


@pytest.fixture
def report(llama: Compiled, empty_state: Path) -> dict[str, Any]:
    """The report on a run of several prompts, two of which begin alike."""
    lines = [json.dumps({"prompt_token_ids": tokens}) for tokens in PROMPTS]
    Path("p.jsonl").write_text("\n".join(lines))
    flags = ("--max-tokens", 5, "--temperature", 0, "--ignore-eos", "-q")
    ran = run_cli("run", "--prompts", "p.jsonl", "--artifact", llama.artifact, *flags)
    assert ran.code == 0
    document: dict[str, Any] = run_cli(
        "bucket-report", "--artifact", llama.artifact, "--json"
    ).document
    return document


def log_lines(llama: Compiled) -> list[dict[str, Any]]:
    """Return the steps as they stand in the log, read by nothing of ours."""
    path = last_run_path(read_manifest(llama.artifact).artifact_id)
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def sums_of_log(llama: Compiled) -> dict[str, Counter[str]]:
    """Add up the log's steps by graph, written out once more from what the words mean."""
    sums: dict[str, Counter[str]] = {}
    for step in log_lines(llama):
        bucket = step["bucket"]
        rows, tokens, context, cached = (
            step[name]
            for name in ("num_seqs", "num_tokens", "num_context_tokens", "num_cached_tokens")
        )
        counts: Counter[str] = Counter(num_uses=1, num_real_tokens=tokens, num_cached_tokens=cached)
        if "num_tokens" in bucket:
            name = f"prefill_t{bucket['num_tokens']}"
            counts["num_length_padded_tokens"] = bucket["num_tokens"] - tokens
        else:
            name = f"decode_b{bucket['batch_size']}_c{bucket['max_context_tokens']}"
            counts["num_row_padded_tokens"] = bucket["batch_size"] - rows
            counts["num_context_padded_tokens"] = rows * bucket["max_context_tokens"] - context
        sums.setdefault(name, Counter()).update(counts)
    return sums


def test_sums_of_every_graph_reconcile_with_the_log_token_for_token(
    llama: Compiled, report: dict[str, Any]
) -> None:
    """The fault: a report's totals and the run's own steps disagree, and nobody notices."""
    expected = sums_of_log(llama)
    for graph in report["graphs"]:
        counted = expected.get(graph["graph"], Counter())
        assert {name: graph[name] for name in SUMS} == {name: counted[name] for name in SUMS}


def test_length_row_block_and_context_padding_are_figures_of_their_own(
    llama: Compiled, report: dict[str, Any]
) -> None:
    """The fault: one padding figure for four things, so that benchmarks cannot be read."""
    total, workload = report["total"], report["workload"]
    prefills = [step for step in log_lines(llama) if "num_tokens" in step["bucket"]]
    assert total["num_length_padded_tokens"] == sum(
        step["bucket"]["num_tokens"] - step["num_tokens"] for step in prefills
    )
    assert total["num_padded_tokens"] == (
        total["num_length_padded_tokens"] + total["num_row_padded_tokens"]
    )
    # Prompts of 3, 10, 20 and 14 in blocks of 4.
    assert workload["num_block_padded_tokens"] == 1 + 2 + 0 + 2
    assert total["num_cached_tokens"] == workload["num_cached_tokens"] > 0
    words = run_cli("bucket-report", "--artifact", llama.artifact).stdout
    for label in ("length padding", "row padding", "ctx padding", "block padding"):
        assert sum(line.startswith(label) for line in words.splitlines()) == 1


def test_prompt_and_total_lengths_have_histograms(llama: Compiled, empty_state: Path) -> None:
    """The fault: whoever resizes a deployment does not see how long its requests are."""
    rows = ["0,5,9", "1,9,40", "2,60,3", "3,200,1"]
    Path("t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    flags = ("--trace", "t.csv", "--json")
    workload = run_cli("bucket-report", llama.config, *flags).document["workload"]
    prompts, totals = workload["prompt_histogram"], workload["total_histogram"]
    assert [each["num_lengths"] for each in prompts] == [1, 1, 1, 1]
    # The one that is refused has no output.
    assert sum(each["num_lengths"] for each in totals) == 3
    assert workload["prompt_lengths"]["max_tokens"] == 200


def test_context_waste_falls_with_a_context_bucket(qwen3: Compiled, empty_state: Path) -> None:
    """The fault: a decode costs by the context that it is compiled for, and nobody says so."""
    rows = [f"{i},20,30" for i in range(6)]
    Path("t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    flags = ("--trace", "t.csv", "--simulate", "--target", "trn2", "--json")
    document = run_cli("bucket-report", qwen3.config, *flags).document
    decodes = {g["graph"]: g for g in document["graphs"] if g["phase"] == "decode"}
    # No request is longer than 50, so that the smallest context bucket takes every step.
    assert decodes["decode_b3_c128"]["num_uses"] > 0
    assert decodes["decode_b3_c160"]["num_uses"] == 0
    current, default, _ = (each["padding"]["total"] for each in document["what_if"]["simulations"])
    assert current["context_padding_ratio"] < default["context_padding_ratio"]
