"""`neuron-llm compile`: the plan, the cache, the artifact, and everything that can be refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_runner import run_cli, run_cli_process
from conftest import Compiled

from neuron_llm.compile.options import default_cache_dir

GRAPHS = ["prefill_t8", "prefill_t16", "decode_b1_c64", "decode_b2_c64", "decode_b4_c64"]


@pytest.fixture
def config(llama: Compiled, empty_state: Path) -> Path:
    """The tiny Llama's configuration in the current directory."""
    path = empty_state / "tiny.yaml"
    path.write_text(llama.config.read_text())
    return path


def test_faults_are_listed_with_their_lines_and_nothing_is_made(empty_state: Path) -> None:
    Path("bad.yaml").write_text(
        "model: ./nowhere\nmax_num_seqs: 0\nmax_num_sqes: 4\nneuron_config: [1]\n"
    )
    ended = run_cli("compile", "bad.yaml")
    assert (ended.code, ended.stdout) == (1, "")
    first, *faults = ended.stderr.splitlines()
    assert first == "error: 4 faults in `bad.yaml`"
    assert [fault.split(": ")[0] for fault in faults] == [f"bad.yaml:{n}" for n in (1, 2, 3, 4)]
    assert "`max_num_seqs`" in faults[2]
    assert os.listdir() == ["bad.yaml"]


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "model: [", "model: a\nmodel: b\n"])
def test_file_that_is_no_configuration_is_refused(empty_state: Path, text: str) -> None:
    Path("bad.yaml").write_text(text)
    ended = run_cli("compile", "bad.yaml")
    assert ended.code == 1
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr


def test_missing_file_is_refused(empty_state: Path) -> None:
    ended = run_cli("compile", "none.yaml")
    assert ended.code == 1
    assert ended.stderr.splitlines() == [
        "error: 1 fault in `none.yaml`",
        "none.yaml: no such file; give the path of a YAML file",
    ]


def test_dry_run_prints_the_graphs_and_makes_nothing(config: Path) -> None:
    ended = run_cli("compile", config, "--dry-run", "--cache-dir", "cache")
    assert (ended.code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == GRAPHS
    assert lines[2].startswith("prefill_t16    9-16 prompt tokens ")
    assert all(line.endswith("to build") for line in lines[1:6])
    assert "5 graphs: 0 cached, 5 to build" in lines
    assert any("65 blocks (1 of them the null block) x 4 tokens x 2 layers" in s for s in lines)
    assert os.listdir() == ["tiny.yaml"]


def test_dry_run_as_json_adds_up(config: Path, compile_cache: Path) -> None:
    ended = run_cli("compile", config, "--dry-run", "--json", "--cache-dir", compile_cache)
    plan = ended.document
    assert (ended.code, plan["schema_version"], plan["name"]) == (0, 1, "tiny")
    assert [graph["graph"] for graph in plan["graphs"]] == GRAPHS
    assert all(graph["is_cached"] for graph in plan["graphs"])
    assert plan["activation_bytes"] == max(g["activation_bytes"] for g in plan["graphs"])
    parts = ("weights_bytes", "kv_cache_bytes", "activation_bytes")
    assert plan["total_bytes"] == sum(plan[part] for part in parts)
    assert not Path("artifacts").exists()


def test_second_compile_builds_nothing_and_says_so(config: Path, compile_cache: Path) -> None:
    ended = run_cli_process("compile", config, "--cache-dir", compile_cache)
    assert (ended.code, ended.stdout) == (0, "artifacts/tiny\n")
    # Nothing but our own lines: no progress bar, no warning of a library.
    *cached, done, following = ended.stderr.splitlines()
    assert cached == [f"cached {graph}  {i}/5" for i, graph in enumerate(GRAPHS, 1)]
    assert done.startswith("compiled 0 graphs in ")
    assert done.endswith(" s, 5/5 cached, 5 verified -> artifacts/tiny")
    assert following == "next: neuron-llm run --prompts file.jsonl"
    assert Path("artifacts/latest").resolve() == Path("artifacts/tiny").resolve()


def test_artifact_elsewhere_is_named_in_the_next_command(config: Path, compile_cache: Path) -> None:
    ended = run_cli("compile", config, "--cache-dir", compile_cache, "--artifacts-dir", "else")
    assert ended.stdout == "else/tiny\n"
    assert ended.stderr.endswith("--prompts file.jsonl --artifact else/tiny\n")


def test_result_as_json_is_one_document(
    config: Path, compile_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_LLM_CACHE_DIR", str(compile_cache))
    ended = run_cli("compile", config, "--json", "-q", "--jobs", 1)
    result = ended.document
    assert (ended.code, ended.stderr) == (0, "")
    assert (result["num_graphs"], result["num_built"], result["num_cached"]) == (5, 0, 5)
    assert result["artifact"] == "artifacts/tiny"
    assert [graph["graph"] for graph in result["graphs"]] == GRAPHS


def test_artifact_of_another_configuration_is_replaced_only_by_force(
    config: Path, compile_cache: Path
) -> None:
    compile_it = ("compile", config, "-q", "--cache-dir", compile_cache)
    assert run_cli(*compile_it).code == 0
    config.write_text(
        config.read_text().replace("block_size", "max_consecutive_prefills: 7\nblock_size")
    )
    refused = run_cli(*compile_it)
    assert (refused.code, refused.stdout) == (1, "")
    assert "`max_consecutive_prefills` differs" in refused.stderr
    assert "--force" in refused.stderr
    assert run_cli(*compile_it, "--force").code == 0


def test_doubts_about_a_plan_are_warnings(config: Path) -> None:
    config.write_text(config.read_text() + "num_gpu_blocks_override: 17\n")
    ended = run_cli("compile", config, "--dry-run", "--cache-dir", "cache")
    assert ended.code == 0
    assert ended.stderr.startswith("warning: 17 KV blocks (`num_gpu_blocks_override`) hold 1 of")


def test_number_of_jobs_must_be_positive(config: Path) -> None:
    assert run_cli("compile", config, "--jobs", 0).code == 2


def test_cache_lies_in_the_users_cache_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache_dir() == Path("/somewhere/neuron-llm")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache_dir() == Path.home() / ".cache/neuron-llm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache/neuron-llm"
