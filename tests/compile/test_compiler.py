"""Compiling to an artifact: what is written, what is shared, what is built again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from conftest import LLAMA_CONFIG, Compiled, compile_tiny
from safetensors import safe_open
from tiny_models import LLAMA, save_model
from transformers import AutoModelForCausalLM

from neuron_llm.artifact.latest import find_latest, mark_latest
from neuron_llm.artifact.manifest import artifact_path, file_sha256, read_manifest
from neuron_llm.backends.cpu.operators.packing import pack_weight
from neuron_llm.compile.weights import load_weights
from neuron_llm.errors import ArtifactError, CompileError, ModelNotFoundError


def statuses(compiled: Compiled) -> list[str]:
    """What building the graphs was; verifying them comes after it."""
    return [event.status for event in compiled.events if event.status != "verified"]


def num_verified(compiled: Compiled) -> int:
    return sum(event.status == "verified" for event in compiled.events)


def test_every_bucket_has_one_graph_and_every_file_its_checksum(llama: Compiled) -> None:
    manifest = read_manifest(llama.artifact)
    assert [graph.name for graph in manifest.graphs] == [
        "prefill_t8", "prefill_t16", "decode_b1_c64", "decode_b2_c64", "decode_b4_c64",
    ]  # fmt: skip
    listed = {entry.path: entry for entry in manifest.all_files()}
    on_disk = {p.relative_to(llama.artifact).as_posix() for p in llama.artifact.rglob("*.*")}
    assert set(listed) == on_disk - {"manifest.json"}
    for path, entry in listed.items():
        assert file_sha256(llama.artifact / path) == entry.sha256


def test_graph_input_shapes_follow_the_contract(llama: Compiled) -> None:
    graphs = {graph.name: graph for graph in read_manifest(llama.artifact).graphs}
    shapes = {tensor.name: tensor.shape for tensor in graphs["prefill_t8"].inputs}
    assert shapes["input_ids"] == (8,) and shapes["block_tables"] == (1, 16)
    shapes = {tensor.name: tensor.shape for tensor in graphs["decode_b4_c64"].inputs}
    assert shapes["input_ids"] == (4,) and shapes["block_tables"] == (4, 16)


def test_weights_are_stored_once_for_all_graphs_packed_where_they_are_multiplied(
    llama: Compiled,
) -> None:
    manifest = read_manifest(llama.artifact)
    weights = load_weights(llama.model, torch.float32)
    needed = {c.weight: c for graph in manifest.graphs for c in graph.constants}
    with safe_open(llama.artifact / "weights.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(needed)
        for name, constant in needed.items():
            stack = torch.cat([weights[part] for part in constant.parts or (name,)])
            expected = pack_weight(stack) if constant.layout == "packed" else stack
            assert torch.equal(file.get_tensor(name), expected), name
    qkv = "model.layers.0.self_attn.{q_proj,k_proj,v_proj}.weight"
    assert needed[qkv].layout == "packed" and needed[qkv].shape == (4, 64, 32)
    tied = {"lm_head.weight", "model.embed_tokens.weight"} & set(needed)
    assert len(tied) == 1 and needed[tied.pop()].layout == "plain"
    parameters = {t.data_ptr(): t.nbytes for t in weights.values()}
    assert manifest.weights.file.size_bytes < 1.2 * sum(parameters.values()) + 20_000


def test_buffers_that_a_checkpoint_leaves_out_are_carried_along(qwen3: Compiled) -> None:
    with safe_open(qwen3.artifact / "weights.safetensors", framework="pt") as file:
        frequencies = file.get_tensor("model.rotary_emb.inv_freq")
    assert torch.allclose(frequencies, 10000.0 ** (-torch.arange(0, 24, 2) / 24))


def test_no_graph_holds_weights(llama: Compiled) -> None:
    needle = AutoModelForCausalLM.from_pretrained(llama.model).model.layers[0].mlp.up_proj.weight
    data = needle.detach().numpy().tobytes()[:256]
    for path in llama.artifact.rglob("graph.so"):
        assert data not in path.read_bytes()


def test_a_second_compile_exports_and_builds_nothing(
    llama: Compiled, compile_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # Neither needs a compiler.
    again = compile_tiny(llama.model, LLAMA_CONFIG, compile_cache, tmp_path)
    assert statuses(again) == ["cached"] * 5
    assert read_manifest(again.artifact).graphs == read_manifest(llama.artifact).graphs


def test_graphs_are_verified_once_for_the_same_weights(
    llama: Compiled, compile_cache: Path, tmp_path: Path
) -> None:
    first = compile_tiny(llama.model, LLAMA_CONFIG, compile_cache, tmp_path)
    again = compile_tiny(llama.model, LLAMA_CONFIG, compile_cache, tmp_path)
    assert (num_verified(first), num_verified(again)) == (5, 0)
    manifest = read_manifest(again.artifact)
    assert manifest == read_manifest(first.artifact) and manifest.golden is not None
    for graph in manifest.graphs:
        verdict = graph.verification
        assert verdict is not None and verdict.num_tokens == verdict.num_tokens_equal
        assert verdict.worst_error < verdict.tolerance / 10


def test_a_cache_in_another_place_serves_another_directory(
    llama: Compiled, compile_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(compile_cache, tmp_path / "cache")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    moved = compile_tiny(llama.model, LLAMA_CONFIG, tmp_path / "cache", tmp_path / "work")
    assert statuses(moved) == ["cached"] * 5


def test_a_fine_tune_shares_every_graph(
    llama: Compiled, compile_cache: Path, tmp_path: Path
) -> None:
    settings = {**LLAMA, "eos_token_id": [7, 8], "bos_token_id": 9}
    fine_tune = save_model(tmp_path / "fine-tune", settings, seed=1)
    compiled = compile_tiny(fine_tune, LLAMA_CONFIG, compile_cache, tmp_path)
    assert statuses(compiled) == ["cached"] * 5
    ours, theirs = read_manifest(compiled.artifact), read_manifest(llama.artifact)
    assert [g.graph_key for g in ours.graphs] == [g.graph_key for g in theirs.graphs]
    assert ours.weights.file.sha256 != theirs.weights.file.sha256
    assert ours.artifact_id != theirs.artifact_id


def test_without_a_compiler_the_missing_graph_is_refused_before_work(
    llama: Compiled, compile_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    other = LLAMA_CONFIG.replace("[8, 16]", "[4, 16]")
    with pytest.raises(CompileError, match=r"no C\+\+ compiler: `g\+\+` is not on PATH"):
        compile_tiny(llama.model, other, compile_cache, tmp_path)


def test_another_configuration_of_the_same_name_is_not_overwritten(
    llama: Compiled, compile_cache: Path, tmp_path: Path
) -> None:
    first = compile_tiny(llama.model, LLAMA_CONFIG, compile_cache, tmp_path)
    before = (first.artifact / "manifest.json").read_text()
    other = LLAMA_CONFIG.replace("[1, 2, 4]", "[1, 4]")
    with pytest.raises(ArtifactError, match="another configuration: `neuron_config` differs"):
        compile_tiny(llama.model, other, compile_cache, tmp_path)
    assert (first.artifact / "manifest.json").read_text() == before
    assert sorted(p.name for p in (tmp_path / "artifacts").iterdir()) == ["latest", "tiny"]


def test_a_directory_that_is_no_artifact_is_left_alone(
    llama: Compiled, compile_cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "artifacts" / "tiny").mkdir(parents=True)
    (tmp_path / "artifacts" / "tiny" / "thesis.txt").write_text("precious")
    with pytest.raises(ArtifactError, match="is no artifact"):
        compile_tiny(llama.model, LLAMA_CONFIG, compile_cache, tmp_path)
    assert (tmp_path / "artifacts" / "tiny" / "thesis.txt").read_text() == "precious"


def test_weights_that_are_missing_are_named(
    llama: Compiled, compile_cache: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(llama.model, broken)
    config = json.loads((broken / "config.json").read_text())
    config["num_hidden_layers"] = 3
    (broken / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelNotFoundError, match=r"do not fit its config.json: `model\.layers\.2"):
        load_weights(broken, torch.float32)


def test_pickled_weights_are_not_read(llama: Compiled, tmp_path: Path) -> None:
    pickled = tmp_path / "pickled"
    shutil.copytree(llama.model, pickled)
    (pickled / "model.safetensors").unlink()
    torch.save({}, pickled / "pytorch_model.bin")
    with pytest.raises(ModelNotFoundError, match="cannot be loaded"):
        load_weights(pickled, torch.float32)


def test_the_latest_artifact_follows_the_last_compile(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        mark_latest(tmp_path / name)
    assert find_latest(tmp_path) == tmp_path / "b"
    os.rename(tmp_path / "b", tmp_path / "c")
    with pytest.raises(ArtifactError, match="is gone"):
        find_latest(tmp_path)


def test_no_artifact_yet_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no artifact in") as caught:
        find_latest(tmp_path)
    assert caught.value.hint is not None and "neuron-llm compile" in caught.value.hint


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "link/x"])
def test_a_path_that_leaves_the_artifact_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "artifact").mkdir()
    (tmp_path / "artifact" / "link").symlink_to(tmp_path)
    with pytest.raises(ArtifactError, match="outside the artifact"):
        artifact_path(tmp_path / "artifact", path)


def test_a_damaged_graph_in_the_cache_is_built_again(
    llama: Compiled, compile_cache: Path, tmp_path: Path
) -> None:
    (graph, *_) = read_manifest(llama.artifact).graphs
    shutil.copytree(compile_cache, tmp_path / "cache")
    damaged = tmp_path / "cache" / "graphs" / graph.graph_key / "graph.so"
    os.truncate(damaged, damaged.stat().st_size // 2)
    again = compile_tiny(llama.model, LLAMA_CONFIG, tmp_path / "cache", tmp_path)
    assert sorted(statuses(again)) == [*["built"], *["cached"] * 4, "started"]
    once_more = compile_tiny(llama.model, LLAMA_CONFIG, tmp_path / "cache", tmp_path)
    assert statuses(once_more) == ["cached"] * 5
