"""The whole main job on the doubles, by both bindings: compile, load in new processes, and run.

Graphs of the trace binding give logits here, those of the other tokens; the other way about they
are in `test_neuron_greedy_job.py` and `model_builder/test_model_builder_binding.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from neuron_job import (
    CONFIG,
    NUM_TOKENS,
    PROMPTS,
    SAMPLING,
    eager_answers,
    neuron_llm,
    neuron_llm_process,
    neuron_llm_without_doubles,
    read_records,
    write_lines,
)
from tiny_models import LLAMA, save_model

GREEDY = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module", params=["trace", "model_builder"])
def binding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def directory(binding: str, tmp_path_factory: pytest.TempPathFactory, llama_model: Path) -> Path:
    """A directory in which the configuration has been compiled, by one binding as a shell does."""
    path = tmp_path_factory.mktemp("neuron")
    config = CONFIG.format(model=llama_model)
    if binding == "model_builder":
        config = config.replace("binding: trace", "binding: model_builder") + SAMPLING
    (path / "tiny.yaml").write_text(config)
    lines = [{"id": str(i), "prompt": prompt, **GREEDY} for i, prompt in enumerate(PROMPTS)]
    write_lines(path / "prompts.jsonl", lines)
    # The processes that build graphs are the same for both.
    run = neuron_llm_process if binding == "trace" else neuron_llm
    ended = run("compile", "tiny.yaml", "--cache-dir", path / "cache", directory=path)
    assert ended.code == 0, ended.stderr
    return path


def test_an_artifact_runs_in_a_new_process_and_answers_as_eager_hugging_face_does(
    binding: str, directory: Path, llama_model: Path
) -> None:
    ended = neuron_llm_process(
        *("run", "--prompts", "prompts.jsonl", "--output", "neuron.jsonl", "--json"),
        "--token-ids",
        directory=directory,
    )
    assert ended.code == 0, ended.stderr
    # Separate graphs hand the cache on at every change of phase; joined ones have it in common.
    assert (ended.document["num_kv_copies"] > 0) == (binding == "trace")
    assert (ended.document["kv_copy_bytes"] > 0) == (binding == "trace")
    records = read_records(directory / "neuron.jsonl")
    assert list(records) == [str(index) for index in range(len(PROMPTS))]
    for record, answer in zip(records.values(), eager_answers(llama_model), strict=True):
        assert record["token_ids"] == answer.token_ids
        assert record["text"] == answer.text
        assert record["finish_reason"] == "length"


def test_every_graph_was_verified_and_says_how_it_is_bound(binding: str, directory: Path) -> None:
    artifact = directory / "artifacts" / "tiny"
    manifest = json.loads((artifact / "manifest.json").read_text())
    needed = {"target": ["trn2"], "logical_nc_config": ["2"], "binding": [binding]}
    assert manifest["requirements"] == needed
    assert manifest["backend_versions"]["torch-neuronx"].endswith("+double")
    shares = binding == "model_builder"
    assert manifest["settings"].get("samples_greedily", False) == shares
    assert ("neuronx-distributed" in manifest["backend_versions"]) == shares
    assert len(manifest["shared_files"]) == int(shares)
    states = ["key_0", "value_0", "key_1", "value_1"]
    for graph in manifest["graphs"]:
        assert graph["verification"]["worst_error"] < 1e-3
        table = json.loads((artifact / "graphs" / graph["name"] / "binding.json").read_text())
        assert table["states"] == states
        # Replaced by name, or by the outputs behind the logits.
        places = {} if shares else {state: 1 + index for index, state in enumerate(states)}
        assert table["aliases"] == places
        assert len(table["hlo_sha256"]) == 1
        assert table["compiler_arguments"][:2] == ["--target", "trn2"]
    logs = sorted((directory / "cache" / "neuronx-cc").rglob("log-neuron-cc.txt"))
    assert len(logs) == len(manifest["graphs"])


def compiled(directory: Path, config: str, *options: str) -> tuple[int, int]:
    """Compile and return how many graphs were built, and how many were in the cache."""
    cache = directory / "cache"
    ended = neuron_llm(
        "compile", config, "--json", "--cache-dir", cache, *options, directory=directory
    )
    assert ended.code == 0, ended.stderr
    return ended.document["num_built"], ended.document["num_cached"]


def test_a_second_compile_builds_nothing(directory: Path) -> None:
    assert compiled(directory, "tiny.yaml") == (0, 2)


def test_a_fine_tune_builds_nothing(directory: Path, tmp_path: Path, llama_model: Path) -> None:
    fine_tune = save_model(tmp_path / "fine-tune", LLAMA, seed=7)
    config = (directory / "tiny.yaml").read_text().replace(str(llama_model), str(fine_tune))
    (directory / "tuned.yaml").write_text(config)
    entries = sorted((directory / "cache" / "graphs").iterdir())
    assert compiled(directory, "tuned.yaml", "--no-verify") == (0, 2)
    # The model that graphs are put together to is the same too: it holds no weights.
    assert sorted((directory / "cache" / "graphs").iterdir()) == entries


def test_one_more_bucket_builds_one_graph(binding: str, directory: Path) -> None:
    config = directory / "wider.yaml"
    config.write_text((directory / "tiny.yaml").read_text())
    assert compiled(directory, "wider.yaml", "--no-verify") == (0, 2)
    num_entries = len(list((directory / "cache" / "graphs").iterdir()))
    added = compiled(directory, "wider.yaml", "--no-verify", "--add-bucket", "decode:1")
    assert added == (1, 2)
    # One graph, and where graphs are put together that is done anew.
    num_more = 2 if binding == "model_builder" else 1
    assert len(list((directory / "cache" / "graphs").iterdir())) == num_entries + num_more


def test_without_the_sdk_everything_but_a_plan_is_refused_with_the_install_line(
    directory: Path,
) -> None:
    install = "neuronx-cc==2.27.5334.0 torch-neuronx==2.9.0.2.15.32035"
    for arguments in (("compile", "tiny.yaml", "--force"), ("run", "--prompts", "prompts.jsonl")):
        ended = neuron_llm_without_doubles(*arguments, directory=directory)
        assert ended.code == 1
        assert "needs torch-neuronx, which is not installed" in ended.stderr
        assert install in ended.stderr.replace("\n", " ")
    ended = neuron_llm_without_doubles("compile", "tiny.yaml", "--dry-run", directory=directory)
    assert ended.code == 0, ended.stderr
