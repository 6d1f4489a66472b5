"""`run`: what it makes sure of before it serves, and the switches for how it does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_runner import Ended, run_cli
from conftest import Compiled
from manifest_edits import edit_manifest

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.report.run.run_log_reader import RunLogReader
from neuron_llm.runtime.run_log import last_run_path

PROMPTS = [{"prompt": "x" * length, "max_tokens": 5} for length in (3, 20, 9, 30, 1)]


@pytest.fixture
def copy(llama: Compiled, empty_state: Path) -> Path:
    return Path(shutil.copytree(llama.artifact, "artifact"))


def run_batch(artifact: Path, *flags: object) -> Ended:
    Path("prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in PROMPTS))
    fixed = ("--artifact", artifact, "--temperature", 0, "--ignore-eos")
    return run_cli("run", "--prompts", "prompts.jsonl", *fixed, *flags)


def run_chat(artifact: Path, *flags: object) -> Ended:
    fixed = ("--artifact", artifact, "--temperature", 0, "--max-tokens", 5)
    return run_cli("run", *fixed, *flags, stdin="hello\nand again\n")


@pytest.mark.parametrize("run", [run_batch, run_chat])
def test_graphs_that_compute_something_else_are_not_served(run, copy: Path) -> None:  # type: ignore[no-untyped-def]
    expected = run(copy).stdout
    edit_manifest(copy, lambda m: m["golden"]["tokens"].update(decode_b2_c64=7))
    ended = run(copy)
    assert (ended.code, ended.stdout) == (1, "")
    assert "the graphs do not compute here what they did when compiled" in ended.stderr
    assert "instead of 7" in ended.stderr and "--no-self-test" in ended.stderr
    assert "Traceback" not in ended.stderr
    served = run(copy, "--no-self-test")
    assert served.code == 0
    if run is run_chat:
        assert served.stdout == expected


def test_a_refused_artifact_replaces_no_output(copy: Path) -> None:
    edit_manifest(copy, lambda m: m["golden"]["tokens"].update(prefill_t8=7))
    Path("out.jsonl").write_text("kept\n")
    ended = run_batch(copy, "-o", "out.jsonl", "--force")
    assert ended.code == 1
    assert Path("out.jsonl").read_text() == "kept\n"


@pytest.mark.parametrize("run", [run_batch, run_chat])
def test_an_artifact_that_does_not_fit_is_refused_before_it_is_loaded(run, copy: Path) -> None:  # type: ignore[no-untyped-def]
    edit_manifest(copy, lambda m: m["settings"].update(num_blocks=2**31 - 1))
    ended = run(copy)
    assert (ended.code, ended.stdout) == (1, "")
    # Blocks of 4 tokens: K and V of 2 heads x 16 in float32, in 2 layers.
    assert "`tiny` needs 4 TiB of memory, " in ended.stderr
    assert "of weights and 4 TiB of KV cache, but " in ended.stderr
    for key in ("num_gpu_blocks_override", "kv_cache_memory", "max_num_seqs"):
        assert f"`{key}`" in ended.stderr


def test_a_reproducible_run_uses_the_largest_graphs_and_says_what_it_pads(
    llama: Compiled, empty_state: Path
) -> None:
    plain = run_batch(llama.artifact, "-o", "plain.jsonl", "--json")
    ended = run_batch(llama.artifact, "-o", "out.jsonl", "--json", "--reproducible")
    assert (plain.code, ended.code) == (0, 0)
    texts = [
        [json.loads(line)["text"] for line in Path(name).read_text().splitlines()]
        for name in ("plain.jsonl", "out.jsonl")
    ]
    assert texts[0] == texts[1]
    used = [g["graph"] for g in ended.document["padding"]["graphs"] if g["num_uses"]]
    assert used == ["prefill_t16", "decode_b4_c64"]
    assert plain.document["reproducible"] is None
    price = ended.document["reproducible"]
    assert price["num_padded_tokens"] == ended.document["padding"]["total"]["num_padded_tokens"]
    least = plain.document["padding"]["total"]["num_padded_tokens"]
    assert price["num_least_padded_tokens"] == least < price["num_padded_tokens"]
    report = run_cli("bucket-report", "--artifact", llama.artifact, "--json").document
    assert [g["graph"] for g in report["graphs"] if g["num_uses"]] == used


def test_the_summary_says_what_reproducibility_pads(llama: Compiled, empty_state: Path) -> None:
    ended = run_batch(llama.artifact, "-o", "out.jsonl", "--reproducible")
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("reproducible: ")]
    assert "tokens of padding; the smallest graphs that fit would have " in line
    plain = run_batch(llama.artifact, "-o", "plain.jsonl")
    assert "reproducible" not in plain.stderr


def test_a_chat_is_reproducible_too(llama: Compiled, empty_state: Path) -> None:
    ended = run_chat(llama.artifact, "--reproducible")
    assert (ended.code, ended.stdout) == (0, run_chat(llama.artifact).stdout)
    log = next(Path(".neuron-llm").glob("runs/*/last_run.jsonl"))
    buckets = {json.dumps(json.loads(x)["bucket"]) for x in log.read_text().splitlines()[1:]}
    assert len(buckets) > 2
    run_chat(llama.artifact, "--reproducible")
    buckets = {json.dumps(json.loads(x)["bucket"]) for x in log.read_text().splitlines()[1:]}
    assert len(buckets) == 2


def test_records_summary_and_log_say_how_long_each_line_waited(
    llama: Compiled, empty_state: Path
) -> None:
    """The fault: a user cannot tell a slow model from a full queue."""
    lines = [{"prompt": "x" * length, "max_tokens": 3} for length in (60, 3, 5, 4, 6, 2)]
    Path("prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = ("run", "--prompts", "prompts.jsonl", "--artifact", llama.artifact, "--temperature", 0)
    ended = run_cli(*run, "--ignore-eos", "-o", "out.jsonl", "--json")
    assert ended.code == 0
    records = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    waits = [record["queue_ms"] for record in records]
    assert all(0 <= record["queue_ms"] < record["ttft_ms"] for record in records)
    assert ended.document["queue_ms"]["max"] == pytest.approx(max(waits), abs=1e-3)
    manifest = Artifact.open(llama.artifact).manifest
    path = last_run_path(manifest.artifact_id)
    with RunLogReader(path, manifest.artifact_id, manifest.buckets.all) as log:
        logged = [step.queue_seconds * 1e3 for step in log if step.queue_seconds is not None]
    assert logged == pytest.approx(waits, abs=1e-3), "first come, first served"
    table = run_cli(*run, "-o", "again.jsonl").stderr
    assert any(line.split()[:1] == ["queue"] for line in table.splitlines())
