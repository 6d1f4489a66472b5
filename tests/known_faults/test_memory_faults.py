"""Faults of memory: estimates that come too late, and shares that every graph pays for."""

from __future__ import annotations

import ctypes
import gc
import re
import shutil
from pathlib import Path

import pytest
import torch
from cli_runner import run_cli
from config_factory import write_config, write_model
from conftest import Compiled
from manifest_edits import edit_manifest
from memory_probe import full_inputs
from tiny_models import LLAMA

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.scheduler.buckets import Bucket


class MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


MALLINFO = getattr(ctypes.CDLL(None), "mallinfo2", None)
WITH_MALLINFO = pytest.mark.skipif(MALLINFO is None, reason="glibc before 2.33")


def allocated_bytes() -> int:
    """Return what malloc has handed out: to the byte, where resident pages say a little more."""
    assert MALLINFO is not None
    MALLINFO.restype = MallocInfo
    info = MALLINFO()
    return int(info.uordblks + info.hblkhd)


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


@WITH_MALLINFO
def test_a_further_graph_brings_no_weights_of_its_own(llama: Compiled, tmp_path: Path) -> None:
    """The fault: each graph that is loaded has a copy of the weights."""
    few = Path(shutil.copytree(llama.artifact, tmp_path / "few"))
    edit_manifest(few, lambda manifest: manifest.update(graphs=manifest["graphs"][1::3]))
    assert [graph.name for graph in read_manifest(few).graphs] == ["prefill_t16", "decode_b4_c64"]
    Artifact.open(llama.artifact).load(self_test=False)  # Imports, and the operator library.
    growths = []
    for directory in (few, llama.artifact):
        artifact = Artifact.open(directory)
        gc.collect()
        before = allocated_bytes()
        session = artifact.load(self_test=False)
        growths.append(allocated_bytes() - before)
        del session
    assert growths[1] - growths[0] < artifact.manifest.weights.file.size_bytes / 2


@WITH_MALLINFO
def test_a_graph_that_has_run_keeps_no_activations(llama: Compiled) -> None:
    """The fault: each graph keeps the memory of its greatest step, though one runs at a time."""
    artifact = Artifact.open(llama.artifact)
    session = artifact.load(self_test=False)
    small, large = artifact.manifest.buckets.prefill
    # What is allocated once for all graphs is allocated now.
    session.execute(small, full_inputs(small, artifact))
    inputs = full_inputs(large, artifact)
    gc.collect()
    before = allocated_bytes()
    session.execute(large, inputs)
    # The least of its activations: the hidden states of its tokens.
    assert allocated_bytes() - before < large.num_tokens * LLAMA["hidden_size"] * 4


def test_no_shape_outside_the_manifest_is_ever_run(
    llama: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault: shapes that are captured in service, until memory runs out."""
    llm = LLM(llama.artifact)
    session = llm.engine.runner.session
    execute, shapes = session.execute, set[tuple[tuple[int, ...], ...]]()

    def watched(bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        shapes.add(tuple(tuple(tensor.shape) for tensor in inputs.as_tuple()))
        return execute(bucket, inputs)

    monkeypatch.setattr(session, "execute", watched)
    params = SamplingParams(temperature=0, max_tokens=7, ignore_eos=True)
    llm.generate([[1] * length for length in (1, 7, 8, 9, 15, 16, 17, 33, 56)], params)
    llm.generate([[2], [3]], params)
    assert shapes == {
        tuple(tensor.shape for tensor in graph.inputs)
        for graph in read_manifest(llama.artifact).graphs
    }


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
    # What takes most comes by name and with its size.
    assert re.search(r"[\d.]+ GiB of weights", ended.stderr)
    assert not Path("cache").exists()
