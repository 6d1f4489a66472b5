"""The whole main job on the doubles: compile, save, load in new processes, and run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from neuron_doubles import environment_with_doubles

CONFIG = """\
model: {model}
backend: neuron
dtype: float32
max_model_len: 64
max_num_seqs: 2
max_num_batched_tokens: 16
block_size: 4
neuron_config:
  target: trn2
  num_batched_tokens_buckets: [16]
  num_seqs_buckets: [2]
  kv_segment_size_buckets: [16]
  binding: trace
"""
GREEDY = {"max_tokens": 6, "ignore_eos": True, "temperature": 0}
PROMPTS = ["a", "Static shapes", "twenty-three characters and some more of them"]


def neuron_llm(
    *arguments: str | Path, directory: Path, with_doubles: bool = True
) -> subprocess.CompletedProcess[str]:
    environment = environment_with_doubles() if with_doubles else None
    return subprocess.run(
        [sys.executable, "-m", "neuron_llm.cli.main", *map(str, arguments)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, llama_model: Path) -> Path:
    """A directory in which the configuration has been compiled."""
    path = tmp_path_factory.mktemp("neuron")
    (path / "tiny.yaml").write_text(CONFIG.format(model=llama_model))
    (path / "prompts.jsonl").write_text(
        "".join(
            json.dumps({"id": str(i), "prompt": prompt, **GREEDY}) + "\n"
            for i, prompt in enumerate(PROMPTS)
        )
    )
    result = neuron_llm("compile", "tiny.yaml", "--cache-dir", path / "cache", directory=path)
    assert result.returncode == 0, result.stderr
    return path


def texts(path: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["id"]: line["text"] for line in lines}


def test_an_artifact_runs_in_a_new_process_with_the_outputs_of_the_cpu_backend(
    directory: Path, tiny_artifact: Path
) -> None:
    result = neuron_llm(
        *("run", "--prompts", "prompts.jsonl", "--output", "neuron.jsonl"), directory=directory
    )
    assert result.returncode == 0, result.stderr
    assert "the KV cache moved between graphs" in result.stderr
    result = neuron_llm(
        *("run", "--prompts", "prompts.jsonl", "--output", "cpu.jsonl"),
        *("--artifact", tiny_artifact),
        directory=directory,
        with_doubles=False,
    )
    assert result.returncode == 0, result.stderr
    outputs = texts(directory / "neuron.jsonl")
    assert outputs == texts(directory / "cpu.jsonl")
    assert len(set(outputs.values())) == len(PROMPTS)


def test_every_graph_was_verified_and_says_how_it_is_bound(directory: Path) -> None:
    artifact = directory / "artifacts" / "tiny"
    manifest = json.loads((artifact / "manifest.json").read_text())
    assert manifest["requirements"] == {"target": ["trn2"], "logical_nc_config": ["2"]}
    assert manifest["backend_versions"]["torch-neuronx"].endswith("+double")
    for graph in manifest["graphs"]:
        assert graph["verification"]["worst_error"] < 1e-3
        table = json.loads((artifact / "graphs" / graph["name"] / "binding.json").read_text())
        assert table["aliases"] == {"key.0": 1, "value.0": 2, "key.1": 3, "value.1": 4}
        assert len(table["hlo_sha256"]) == 1
        assert table["compiler_arguments"][:2] == ["--target", "trn2"]
    logs = sorted((directory / "cache" / "neuronx-cc").glob("*/log-neuron-cc.txt"))
    assert len(logs) == len(manifest["graphs"])


def test_a_second_compile_builds_nothing(directory: Path) -> None:
    result = neuron_llm(
        *("compile", "tiny.yaml", "--json", "--cache-dir", directory / "cache"),
        directory=directory,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["num_built"], answer["num_cached"]) == (0, 2)


def test_without_the_sdk_everything_but_a_plan_is_refused_with_the_install_line(
    directory: Path,
) -> None:
    install = "neuronx-cc==2.27.5334.0 torch-neuronx==2.9.0.2.15.32035"
    for arguments in (("compile", "tiny.yaml", "--force"), ("run", "--prompts", "prompts.jsonl")):
        result = neuron_llm(*arguments, directory=directory, with_doubles=False)
        assert result.returncode == 1
        assert "needs torch-neuronx, which is not installed" in result.stderr
        assert install in result.stderr.replace("\n", " ")
    result = neuron_llm(
        "compile", "tiny.yaml", "--dry-run", directory=directory, with_doubles=False
    )
    assert result.returncode == 0, result.stderr
