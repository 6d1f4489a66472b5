"""What an artifact is checked for before a graph is loaded, and that loading needs nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Compiled
from manifest_edits import edit_manifest
from tiny_models import load_reference, reference_tokens

from neuron_llm import LLM, SamplingParams
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.backends.cpu import backend as cpu_backend
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler.step_record import StepRecord


@pytest.fixture
def copy(llama: Compiled, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama.artifact, tmp_path / "copy"))


def test_a_directory_without_a_manifest_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no artifact"):
        Artifact.open(tmp_path)


def test_a_truncated_graph_is_named(copy: Path) -> None:
    graph = copy / "graphs" / "decode_b2_c64" / "graph.so"
    graph.write_bytes(graph.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"`graphs/decode_b2_c64/graph.so` .* bytes"):
        Artifact.open(copy)


def test_a_flipped_byte_in_a_graph_is_named(copy: Path) -> None:
    graph = copy / "graphs" / "prefill_t8" / "graph.so"
    data = bytearray(graph.read_bytes())
    data[len(data) // 2] ^= 1
    graph.write_bytes(data)
    with pytest.raises(ArtifactError, match="graph `prefill_t8` is damaged"):
        Artifact.open(copy)


def test_truncated_weights_are_named(copy: Path) -> None:
    weights = copy / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"weights\.safetensors"):
        Artifact.open(copy)


def test_another_torch_is_refused_with_both_versions(copy: Path) -> None:
    edit_manifest(copy, lambda m: m["backend_versions"].update(torch="1.0.0"))
    with pytest.raises(ArtifactError, match=r"compiled with torch 1\.0\.0, but torch here is 2"):
        Artifact.open(copy)


def test_a_narrower_cpu_is_refused_by_the_missing_feature(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_manifest(copy, lambda m: m.update(requirements={"cpu_features": ["avx2", "avx512f"]}))
    monkeypatch.setattr(cpu_backend, "cpu_features", lambda: ["avx2"])
    with pytest.raises(ArtifactError, match="this CPU lacks `avx512f`"):
        Artifact.open(copy)


def test_another_backend_is_never_replaced_by_this_one(copy: Path) -> None:
    edit_manifest(copy, lambda m: m.update(backend="neuron"))
    with pytest.raises(ArtifactError, match="backend `neuron` needs torch-neuronx"):
        Artifact.open(copy)


def test_a_schema_of_the_future_is_refused(copy: Path) -> None:
    edit_manifest(copy, lambda m: m.update(schema_version=3))
    with pytest.raises(ArtifactError, match="schema version `3`"):
        Artifact.open(copy)


def test_a_manifest_that_leads_outside_is_refused(copy: Path) -> None:
    edit_manifest(copy, lambda m: m["files"][0].update(path="../../../etc/passwd"))
    with pytest.raises(ArtifactError, match="outside the artifact"):
        Artifact.open(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}', "\x00"])
def test_a_damaged_manifest_is_an_error_not_a_traceback(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text)
    with pytest.raises(ArtifactError):
        Artifact.open(copy)


def test_shapes_that_differ_from_the_buckets_are_refused(copy: Path) -> None:
    edit_manifest(copy, lambda m: m["settings"].update(block_size=8))
    with pytest.raises(ArtifactError, match="was compiled for the shapes"):
        Artifact.open(copy)


def without_graph(name: str) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        manifest["graphs"] = [graph for graph in manifest["graphs"] if graph["name"] != name]

    return change


def test_without_a_smaller_bucket_the_next_larger_one_is_used(copy: Path, llama: Compiled) -> None:
    edit_manifest(copy, without_graph("prefill_t8"))
    edit_manifest(copy, without_graph("decode_b2_c64"))
    llm = LLM(copy)
    steps: list[StepRecord] = []
    llm.engine.on_step = steps.append
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    outputs = llm.generate([[1, 2, 3], [4, 5]], params)
    reference = load_reference(llama.model)
    assert [list(o.outputs[0].token_ids) for o in outputs] == [
        reference_tokens(reference, [1, 2, 3], 3), reference_tokens(reference, [4, 5], 3),
    ]  # fmt: skip
    assert {step.bucket.name for step in steps} == {"prefill_t16", "decode_b4_c64"}


@pytest.mark.parametrize("name", ["prefill_t16", "decode_b4_c64"])
def test_without_the_largest_bucket_the_artifact_is_refused(copy: Path, name: str) -> None:
    edit_manifest(copy, without_graph(name))
    with pytest.raises(ArtifactError, match=r"lacks graphs: a .* step of"):
        Artifact.open(copy)


def test_it_runs_read_only_without_compiler_or_room_in_tmp(copy: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for path in [*copy.rglob("*"), copy]:
        path.chmod(path.stat().st_mode & ~0o222)
    script = (
        "import sys; from neuron_llm import LLM, SamplingParams\n"
        "params = SamplingParams(temperature=0, max_tokens=4)\n"
        "out = LLM(sys.argv[1]).generate([[1, 2, 3]], params)\n"
        "print(list(out[0].outputs[0].token_ids))\n"
        "print([m for m in sys.modules if m.startswith('torch._inductor.codecache')])"
    )
    environment = {**os.environ, "PATH": "", "CXX": "/nowhere", "TMPDIR": str(scratch)}
    result = subprocess.run(
        [sys.executable, "-c", script, str(copy)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    tokens, compiler_modules = result.stdout.splitlines()
    assert re.fullmatch(r"\[\d+, \d+, \d+, \d+\]", tokens)
    assert compiler_modules == "[]", "running must not import the compiler"
    assert list(scratch.iterdir()) == []
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)


def test_two_processes_use_one_artifact_at_a_time(llama: Compiled) -> None:
    script = (
        "import sys; from neuron_llm import LLM, SamplingParams\n"
        "out = LLM(sys.argv[1]).generate([[9] * 20], SamplingParams(temperature=0, max_tokens=4))\n"
        "print(list(out[0].outputs[0].token_ids))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(llama.artifact)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert outputs[0] == outputs[1] != ""
