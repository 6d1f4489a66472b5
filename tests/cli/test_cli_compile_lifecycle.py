"""`neuron-llm compile`: one more bucket, a limit on time, and the way on when graphs fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_runner import Ended, run_cli
from conftest import Compiled

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.backends.build.failure import BuildFailure, build_error
from neuron_llm.backends.build.pool import BuildTask


@pytest.fixture
def config(llama: Compiled, empty_state: Path) -> Path:
    """The tiny Llama's configuration without its smaller prefill graph, compiled."""
    path = empty_state / "tiny.yaml"
    path.write_text(llama.config.read_text().replace("[8, 16]", "[16]"))
    return path


def compile_it(config: Path, cache: Path, *options: object) -> Ended:
    return run_cli("compile", config.name, "--cache-dir", cache, "--no-verify", *options)


def test_a_bucket_is_added_to_an_artifact_and_its_other_graphs_stay(
    config: Path, compile_cache: Path, llama: Compiled
) -> None:
    assert compile_it(config, compile_cache).code == 0
    before = read_manifest(Path("artifacts/tiny"))
    added = compile_it(config, compile_cache, "--add-bucket", "prefill:8", "--json").document
    assert (added["num_graphs"], added["num_built"], added["num_cached"]) == (5, 0, 5)
    after = Artifact.open(Path("artifacts/tiny")).manifest
    assert {graph.graph_key for graph in before.graphs} < {g.graph_key for g in after.graphs}
    assert after.config["neuron_config"]["num_batched_tokens_buckets"] == [8, 16]
    assert after.artifact_id == read_manifest(llama.artifact).artifact_id
    lost = compile_it(config, compile_cache)
    assert lost.code == 1 and "`neuron_config` differs" in lost.stderr


def test_a_bucket_is_added_to_no_other_configuration(config: Path, compile_cache: Path) -> None:
    assert compile_it(config, compile_cache).code == 0
    config.write_text(config.read_text() + "num_gpu_blocks_override: 33\n")
    refused = compile_it(config, compile_cache, "--add-bucket", "prefill:8")
    assert refused.code == 1 and "`num_gpu_blocks_override` differs" in refused.stderr


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[BuildTask]:
    """What would be built; every build is killed instead."""
    taken: list[BuildTask] = []

    def kill_all(tasks: list[BuildTask], *, timeout_s: float | None, **_: Any) -> None:
        assert timeout_s == 90
        taken.extend(tasks)
        raise build_error([BuildFailure(t.graph, -9, t.log, 2**30) for t in tasks], len(tasks))

    monkeypatch.setattr("neuron_llm.backends.build.builds.build_all", kill_all)
    return taken


def test_one_more_bucket_builds_one_graph_whose_failure_names_bucket_log_and_command(
    config: Path, compile_cache: Path, tasks: list[BuildTask]
) -> None:
    ended = compile_it(config, compile_cache, "--add-bucket", "prefill:4", "--timeout", 90)
    (task,) = tasks
    assert (ended.code, task.graph) == (1, "prefill_t4")
    assert "1 of 1 graphs did not compile: prefill_t4: the compiler was killed" in ended.stderr
    assert f"log: {task.log}" in ended.stderr
    command = (
        f"neuron-llm compile tiny.yaml --cache-dir {compile_cache} --no-verify"
        " --add-bucket prefill:4 --timeout 90 --jobs 1"
    )
    assert ended.stderr.endswith(f"this builds the rest: `{command}`\n")


def test_a_bucket_that_is_none_is_refused(config: Path, compile_cache: Path) -> None:
    ended = compile_it(config, compile_cache, "--add-bucket", "prefill")
    assert ended.code == 1
    assert ended.stderr == (
        "error: `prefill` is no bucket\n\n"
        "hint: write `prefill:TOKENS`, `decode:ROWS` or `decode:ROWSxCONTEXT`\n"
    )
