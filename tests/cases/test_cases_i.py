"""Faults of memory: estimates that come too late, and shares that every graph pays for."""

from __future__ import annotations

import shutil
from pathlib import Path

from cli_runner import run_cli
from config_factory import write_config, write_model
from conftest import Compiled
from manifest_edits import edit_manifest
from test_memory_growth import memory_report

from neuron_llm import LLM, SamplingParams
from neuron_llm.compile.manifest import read_manifest

# What a graph's code and its tables may take; the weights of the tiny model are smaller than it.
GRAPH_BYTES = 4e6


def test_the_memory_is_told_with_its_formula_before_anything_is_compiled(
    empty_state: Path,
) -> None:
    """The fault: a number of KV blocks that nobody can derive, and an estimate that comes late."""
    config = write_config(empty_state, "max_model_len: 64\nblock_size: 4\nmax_num_seqs: 2\n")
    ended = run_cli("compile", config, "--dry-run", "--cache-dir", "cache")
    assert ended.code == 0
    # Two requests of 16 blocks and the null block; K and V of 2 layers, 2 heads of 16, 4 bytes.
    assert "33 blocks (1 of them the null block) x 4 tokens x 2 layers" in ended.stdout
    assert f"{33 * 4 * 2 * 2 * 2 * 16 * 4 / 1024:.4g} KiB" in ended.stdout
    assert not Path("cache").exists()


def test_graphs_share_weights_and_cache_and_keep_no_activations(
    llama: Compiled, tmp_path: Path
) -> None:
    """The fault: each graph that is loaded keeps its own peak of activations."""
    few = Path(shutil.copytree(llama.artifact, tmp_path / "few"))
    edit_manifest(few, lambda manifest: manifest.update(graphs=manifest["graphs"][1::3]))
    assert [graph.name for graph in read_manifest(few).graphs] == ["prefill_t16", "decode_b4_c64"]
    growth = [memory_report(artifact)["growth_bytes"] for artifact in (few, llama.artifact)]
    assert growth[1] - growth[0] < 3 * GRAPH_BYTES


def test_no_shape_outside_the_manifest_is_ever_run(llama: Compiled) -> None:
    """The fault: shapes that are captured in service, until memory runs out."""
    llm = LLM(llama.artifact)
    names: set[str] = set()
    llm.engine.on_step = lambda step: names.add(step.bucket.name)
    params = SamplingParams(temperature=0, max_tokens=7, ignore_eos=True)
    llm.generate([[1] * length for length in (1, 7, 8, 9, 15, 16, 17, 33, 56)], params)
    assert names <= {graph.name for graph in read_manifest(llama.artifact).graphs}


def test_more_than_the_device_has_is_refused_before_anything_is_compiled(
    empty_state: Path,
) -> None:
    """The fault: hours of compiling, and then the graphs do not fit."""
    write_model(
        empty_state / "model", num_hidden_layers=100, hidden_size=8192, intermediate_size=28672
    )
    limits = "max_model_len: 64\nmax_num_seqs: 1\nbackend: neuron\n"
    config = write_config(empty_state, f"{limits}neuron_config:\n  target: inf2\n")
    ended = run_cli("compile", config, "--dry-run", "--cache-dir", "cache")
    assert (ended.code, ended.stdout) == (1, "")
    assert "a logical core of inf2 has" in ended.stderr
    assert not Path("cache").exists()
