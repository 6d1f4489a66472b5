"""`neuron-llm bucket-report`: every graph, its uses, and sums that agree with the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cli_runner import run_cli
from conftest import Compiled

from neuron_llm.compile.manifest import read_manifest
from neuron_llm.report.run_log import last_run_path

GRAPHS = ["prefill_t8", "prefill_t16", "decode_b1_c64", "decode_b2_c64", "decode_b4_c64"]


def run_once(llama: Compiled) -> None:
    """Run one prompt of 5 tokens for 4 tokens: one prefill, three decodes."""
    Path("prompts.jsonl").write_text(json.dumps({"prompt_token_ids": [1, 2, 3, 4, 5]}) + "\n")
    flags = ("--max-tokens", 4, "--temperature", 0, "--ignore-eos", "-q")
    ended = run_cli("run", "--prompts", "prompts.jsonl", "--artifact", llama.artifact, *flags)
    assert ended.code == 0


def test_before_any_run_the_table_says_what_graphs_serve(
    llama: Compiled, empty_state: Path
) -> None:
    ended = run_cli("bucket-report", "--artifact", llama.artifact)
    assert ended.code == 0
    assert ended.stdout.splitlines() == [
        "graph          serves                      worst waste",
        "prefill_t8     1-8 prompt tokens                 87.5%",
        "prefill_t16    9-16 prompt tokens                43.8%",
        "decode_b1_c64  1 request, context 1-64            0.0%",
        "decode_b2_c64  2 requests, context 1-64           0.0%",
        "decode_b4_c64  3-4 requests, context 1-64        25.0%",
    ]
    assert "no run of this artifact in this directory yet\n" in ended.stderr
    assert ended.stderr.endswith("next: neuron-llm run --prompts file.jsonl\n")


def test_after_a_run_every_graph_has_a_row(llama: Compiled, empty_state: Path) -> None:
    run_once(llama)
    ended = run_cli("bucket-report", "--artifact", llama.artifact)
    assert ended.code == 0
    header, *lines = ended.stdout.splitlines()
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
    assert "last run here: " in ended.stderr
    assert ended.stderr.endswith(", 4 steps\n")


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
    assert ended.stdout.startswith("graph ")
