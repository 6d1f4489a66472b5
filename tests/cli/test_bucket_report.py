"""`neuron-llm bucket-report`: every graph, its uses, and sums that agree with the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import run_cli
from conftest import Compiled

from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.runtime.run_log import last_run_path

GRAPHS = ["prefill_t8", "prefill_t16", "decode_b1_c64", "decode_b2_c64", "decode_b4_c64"]


def run_once(llama: Compiled) -> None:
    """Run one prompt of 5 tokens for 4 tokens: one prefill, three decodes."""
    Path("prompts.jsonl").write_text(json.dumps({"prompt_token_ids": [1, 2, 3, 4, 5]}) + "\n")
    flags = ("--max-tokens", 4, "--temperature", 0, "--ignore-eos", "-q")
    ended = run_cli("run", "--prompts", "prompts.jsonl", "--artifact", llama.artifact, *flags)
    assert ended.code == 0


def section_of(text: str, title: str) -> list[str]:
    """Return the lines of a section, up to the blank line behind its table."""
    lines = text.splitlines()
    first = lines.index(title) + 2
    return lines[first : lines.index("", first)]


def test_before_any_run_the_table_says_what_graphs_serve(
    llama: Compiled, empty_state: Path
) -> None:
    ended = run_cli("bucket-report", "--artifact", llama.artifact)
    assert ended.code == 0
    assert section_of(ended.stdout, "graphs") == [
        "graph          serves                      worst  expected",
        "prefill_t8     1-8 prompt tokens           87.5%     43.8%",
        "prefill_t16    9-16 prompt tokens          43.8%     21.9%",
        "decode_b1_c64  1 request, context 1-64      0.0%      0.0%",
        "decode_b2_c64  2 requests, context 1-64     0.0%      0.0%",
        "decode_b4_c64  3-4 requests, context 1-64  25.0%     12.5%",
    ]
    assert "\ncoverage        complete: " in ended.stdout
    assert " s of building on record\n" in ended.stdout
    assert "no run of this artifact in this directory yet\n" in ended.stderr
    assert ended.stderr.endswith("next: neuron-llm run --prompts file.jsonl\n")


def test_after_a_run_every_graph_has_a_row(llama: Compiled, empty_state: Path) -> None:
    run_once(llama)
    ended = run_cli("bucket-report", "--artifact", llama.artifact)
    assert ended.code == 0
    header, *lines = section_of(ended.stdout, "uses: the last run here")
    assert header.split("  ")[0] == "graph"
    rows = [line.split() for line in lines]
    assert [row[:7] for row in rows] == [
        ["prefill_t8", "1", "5", "3", "37.5%", "0", "-"],
        ["prefill_t16", "0", "0", "0", "-", "0", "-"],
        # Contexts of 6, 7 and 8 in room for 64.
        ["decode_b1_c64", "3", "3", "0", "0.0%", "0", "89.1%"],
        ["decode_b2_c64", "0", "0", "0", "-", "0", "-"],
        ["decode_b4_c64", "0", "0", "0", "-", "0", "-"],
        ["total", "4", "8", "3", "27.3%", "0", "89.1%"],
    ]
    # 5 tokens in blocks of 4, and 3 decodes of one request with room for 64.
    assert "\nblock padding   3 slots" in ended.stdout
    assert "\nctx padding     171 slots" in ended.stdout
    assert "\nworkload: last run 2" in ended.stdout
    assert "\nprice           230.0 tokens a step, 1 a token\n" in ended.stdout
    assert "last run here: " in ended.stderr
    assert ended.stderr.endswith(", 4 steps\n")


def test_a_run_is_what_was_simulated_of_its_prompts(llama: Compiled, empty_state: Path) -> None:
    common = [1, 2, 3, 4, 5, 6, 7, 8]
    prompts = [common, [*common, 9], [9] * 37, [*common, 9, 9, 9], [5], [8] * 16]
    lines = [{"prompt_token_ids": ids, "max_tokens": 3 + i} for i, ids in enumerate(prompts)]
    lines[1]["n"] = 3
    Path("p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    report = ("bucket-report", "--artifact", llama.artifact, "--json")
    predicted = run_cli(*report, "--prompts", "p.jsonl", "--simulate", "--target", "cpu").document
    flags = ("--seed", 1, "--ignore-eos", "-q")
    assert run_cli("run", "--prompts", "p.jsonl", "--artifact", llama.artifact, *flags).code == 0
    ran = run_cli(*report).document
    timed = {"seconds", "mean_ms"}
    for foretold, was in zip(predicted["graphs"], ran["graphs"], strict=True):
        assert {k: v for k, v in foretold.items() if k not in timed} == {
            k: v for k, v in was.items() if k not in timed
        }
    assert ran["workload"]["num_prompts"] == len(prompts) + 2
    computed = ran["workload"]["computed_lengths"]["num_tokens"]
    assert computed + ran["total"]["num_cached_tokens"] == sum(map(len, prompts)) + 2 * 9
    assert ran["total"]["num_cached_tokens"] > 0


def test_the_time_in_the_queue_is_that_of_the_run(llama: Compiled, empty_state: Path) -> None:
    run_once(llama)
    path = last_run_path(read_manifest(llama.artifact).artifact_id)
    header, first, *others = path.read_text().splitlines()
    step = json.loads(first)
    assert step["queue_seconds"] > 0
    lines = [json.dumps({**step, "queue_seconds": wait}) for wait in (0.0125, 0.25, 2.5)]
    path.write_text("\n".join([header, *lines, *others]) + "\n")
    ended = run_cli("bucket-report", "--artifact", llama.artifact)
    (line,) = (line for line in " ".join(ended.stdout.split()).split(" queue ")[1:])
    assert line.startswith(
        "3 prompts waited for the first step, ms: p50 250.0, p90 2050.0, p99 2455.0, longest 2500.0"
    )
    waits = run_cli("bucket-report", "--artifact", llama.artifact, "--json").document["last_run"]
    assert waits["queue_ms"] == {
        "mean": pytest.approx(2762.5 / 3),
        "p50": 250.0,
        "p90": pytest.approx(2050.0),
        "p99": pytest.approx(2455.0),
        "max": 2500.0,
    }


def test_a_log_without_times_in_the_queue_says_nothing_of_them(
    llama: Compiled, empty_state: Path
) -> None:
    run_once(llama)
    path = last_run_path(read_manifest(llama.artifact).artifact_id)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["schema_version"] = 1
    for step in lines[1:]:
        del step["queue_seconds"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ended = run_cli("bucket-report", "--artifact", llama.artifact)
    assert ended.code == 0
    assert "queue" not in ended.stdout


def test_the_last_run_is_a_workload_with_measured_times(llama: Compiled, empty_state: Path) -> None:
    run_once(llama)
    flags = ("--artifact", llama.artifact, "--simulate", "--json")
    document = run_cli("bucket-report", *flags).document
    assert document["workload"]["source"] == "last_run"
    assert document["workload"]["num_prompts"] == 1
    # One token of its prefill, and three of decodes.
    assert document["workload"]["assumed_output_tokens"] == 4
    assert document["step_times"].startswith("measured in the last run")
    simulated = document["what_if"]["simulations"][0]["padding"]["graphs"]
    for graph, step in zip(document["graphs"], simulated, strict=True):
        assert (graph["num_uses"], graph["num_padded_tokens"]) == (
            step["num_uses"],
            step["num_padded_tokens"],
        )


def test_json_has_ranges_and_sums_of_every_graph(llama: Compiled, empty_state: Path) -> None:
    before = run_cli("bucket-report", "--artifact", llama.artifact, "--json").document
    assert (before["schema_version"], before["last_run"]) == (1, None)
    run_once(llama)
    after = run_cli("bucket-report", "--artifact", llama.artifact, "--json").document
    assert after["last_run"]["started_at"]
    assert [graph["graph"] for graph in after["graphs"]] == GRAPHS
    assert [graph["num_uses"] for graph in after["graphs"]] == [1, 0, 3, 0, 0]
    for key in ("num_uses", "num_real_tokens", "num_padded_tokens", "num_context_padded_tokens"):
        assert after["total"][key] == sum(graph[key] for graph in after["graphs"])


def test_damaged_log_is_an_expected_failure(llama: Compiled, empty_state: Path) -> None:
    run_once(llama)
    path = last_run_path(read_manifest(llama.artifact).artifact_id)
    path.write_text(path.read_text()[:-9])
    ended = run_cli("bucket-report", "--artifact", llama.artifact)
    assert (ended.code, ended.stdout) == (1, "")
    assert f"error: the log of the last run, `{path}`, cannot be used" in ended.stderr


def test_report_needs_no_torch(llama: Compiled, empty_state: Path) -> None:
    run_once(llama)
    code = (
        "import sys; from neuron_llm.cli.main import main\n"
        f"sys.argv[1:] = ['bucket-report', '-q', '--artifact', {str(llama.artifact)!r}]\n"
        "try: main()\n"
        "finally: print(sorted(set(sys.modules) & {'torch', 'transformers'}), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == "[]\n"
    assert ended.stdout.startswith("graphs\n")
