"""Compiles that are killed at any moment: the next one resumes, and no bad artifact is left."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.files import check_files
from neuron_llm.artifact.scratch import prune_artifacts
from neuron_llm.backends.build import entry
from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.cpu import aot
from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.target import CpuTarget
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.scheduler.buckets import DecodeBucket

CONFIG = """\
model: {model}
dtype: float32
max_model_len: 16
max_num_seqs: 1
max_num_batched_tokens: 8
block_size: 4
"""
GRAPHS = ["prefill_t8", "decode_b1_c16"]


@pytest.fixture
def workshop(llama_model: Path, compile_cache: Path, tmp_path: Path) -> Path:
    """A directory with a configuration, and a cache that has the operator library alone."""
    (tmp_path / "tiny.yaml").write_text(CONFIG.format(model=llama_model))
    cache = GraphCache(tmp_path / "cache")
    for library in (compile_cache / "graphs").glob("lib*"):
        shutil.copytree(library, cache.root / "graphs" / library.name)
    return tmp_path


def start(workshop: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "neuron_llm.cli.main", "compile", "tiny.yaml", "--force"]
    # A file, since the fork server keeps a pipe open for a while after its master was killed.
    with (workshop / "stderr").open("w") as stderr:
        return subprocess.Popen([*command, "--cache-dir", "cache"], cwd=workshop, stderr=stderr)


def stderr_of(workshop: Path) -> str:
    return (workshop / "stderr").read_text()


def artifacts_of(workshop: Path) -> list[Path]:
    folder = workshop / "artifacts"
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def kill_at_random(workshop: Path, num_times: int, rng: random.Random) -> None:
    """Kill compiles; after each, every artifact that there is must be whole."""
    longest = 8.0
    for _ in range(num_times):
        began = time.monotonic()
        compiling = start(workshop)
        try:
            assert compiling.wait(timeout=rng.uniform(0.0, longest)) == 0, stderr_of(workshop)
            # It was quicker; the next is killed before so much time has passed.
            longest = max(1.0, time.monotonic() - began)
        except subprocess.TimeoutExpired:
            compiling.kill()
            compiling.wait()
        for artifact in artifacts_of(workshop):
            assert check_files(artifact).damages == ()


def resume(workshop: Path) -> None:
    """Let a compile end, and see that all is as if none had been killed."""
    assert start(workshop).wait() == 0, stderr_of(workshop)
    artifact = Artifact.open(workshop / "artifacts" / "tiny")
    assert [graph.name for graph in artifact.manifest.graphs] == GRAPHS
    assert artifact.manifest.golden is not None
    assert check_files(artifact.directory).damages == ()
    artifact.load()
    prune_artifacts(workshop / "artifacts", dry_run=False)
    assert sorted(os.listdir(workshop / "artifacts")) == ["latest", "tiny"]
    assert list((workshop / "cache" / "tmp").iterdir()) == []


def kill_and_resume(workshop: Path, num_times: int, seed: int) -> None:
    """Kill compiles while they build, and later ones that find all graphs in the cache."""
    rng = random.Random(seed)
    kill_at_random(workshop, num_times // 2, rng)
    resume(workshop)
    kill_at_random(workshop, num_times - num_times // 2, rng)
    resume(workshop)


def test_compiles_that_are_killed_resume(workshop: Path) -> None:
    kill_and_resume(workshop, 5, seed=0)


@pytest.mark.prove
def test_compiles_that_are_killed_50_times_resume(workshop: Path) -> None:
    kill_and_resume(workshop, 50, seed=1)


def test_two_that_want_one_graph_build_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def compile_slowly(*_: Any) -> None:
        built.append(threading.current_thread().name)
        time.sleep(0.5)

    monkeypatch.setattr(aot, "export_graph", lambda *_, **__: type("Graph", (), {"exported": 0}))
    monkeypatch.setattr(entry, "exported_key", lambda *_: "graph")
    monkeypatch.setattr(aot, "_compile", compile_slowly)
    monkeypatch.setattr(aot, "_constants", lambda *_: [])
    spec = GraphSpec(DecodeBucket(1, 16), {}, "float32", 16, 4, 5)
    cache = GraphCache(tmp_path)
    arguments = (spec, "config", cache, CpuTarget(IsaLevel.PORTABLE, custom_ops=False), None)
    threads = [threading.Thread(target=aot.build_graph, args=arguments) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(built) == 1
    assert cache.find("config") is not None
