"""Artifacts that were damaged or changed: refused with a reason before the first request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Compiled
from manifest_edits import edit_manifest

from neuron_llm import LLM
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.manifest import describe_file
from neuron_llm.errors import ArtifactError

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def copy(llama: Compiled, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama.artifact, tmp_path / "copy"))


def overwrite(path: Path, start: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[start : start + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("start", "data"), [(-8192, bytes(4096)), (0, b"\xff" * 8), (8, b"nothing")]
)
def test_weights_of_the_right_size_with_other_content_are_refused(
    copy: Path, start: int, data: bytes
) -> None:
    weights = copy / "weights.safetensors"
    overwrite(weights, weights.stat().st_size + start if start < 0 else start, data)
    with pytest.raises(ArtifactError, match=r"checksum of `weights\.safetensors` differs"):
        LLM(copy)


@pytest.mark.parametrize("name", ["config.json", "tokenizer/tokenizer.json"])
def test_every_small_file_is_compared_with_its_checksum(copy: Path, name: str) -> None:
    overwrite(copy / name, 0, b"[")
    with pytest.raises(ArtifactError, match=f"checksum of `{name}` differs"):
        Artifact.open(copy)


def in_settings(**values: object) -> Change:
    return lambda manifest: manifest["settings"].update(values)


def in_model(**values: object) -> Change:
    return lambda manifest: manifest["model"].update(values)


def in_graph(index: int, **values: object) -> Change:
    return lambda manifest: manifest["graphs"][index].update(values)


def repeat_graph(manifest: dict[str, Any]) -> None:
    manifest["graphs"].append(manifest["graphs"][0])


def swap_decode_graphs(manifest: dict[str, Any]) -> None:
    first, second = manifest["graphs"][-2:]
    first["constants"], second["constants"] = second["constants"], first["constants"][:1]


def drop_graph_file(manifest: dict[str, Any]) -> None:
    files = manifest["graphs"][0]["files"]
    manifest["graphs"][0]["files"] = [file for file in files if file["path"][-3:] != ".so"]


SENSELESS = [
    (in_settings(block_size=0), r"damaged at `settings\.block_size`"),
    (in_settings(num_blocks=2**40), r"damaged at `settings\.num_blocks`"),
    (in_settings(dtype="bogus"), r"damaged at `settings\.dtype`"),
    (in_model(num_layers=0), r"damaged at `model\.num_layers`"),
    (in_model(num_kv_heads=-1), r"damaged at `model\.num_kv_heads`"),
    (in_model(head_dim=0), r"damaged at `model\.head_dim`"),
    (in_model(vocab_size=0), r"damaged at `model\.vocab_size`"),
    (in_graph(0, num_tokens=None), "a graph has `num_tokens`, or"),
    (in_graph(0, batch_size=1), "a graph has `num_tokens`, or"),
    (in_graph(2, batch_size=2), "is not the name of its bucket"),
    (in_graph(0, name="../../x"), "is not the name of its bucket"),
    (in_graph(0, files=[]), r"no checksum of `graphs/prefill_t8/graph\.so`"),
    (drop_graph_file, r"no checksum of `graphs/prefill_t8/graph\.so`"),
    (in_graph(1, constants=[]), r"graph `prefill_t16` otherwise than its `graph\.json`"),
    (swap_decode_graphs, r"graph `decode_b4_c64` otherwise than its `graph\.json`"),
    (repeat_graph, "two graphs have one name"),
    (lambda manifest: manifest["files"][0].update(path="a\0b"), r"damaged at `files\.0\.path`"),
    (lambda manifest: manifest.update(config=None), "damaged at `config`"),
]


@pytest.mark.parametrize(("change", "reason"), SENSELESS)
def test_a_manifest_that_makes_no_sense_is_refused_by_what_is_wrong(
    copy: Path, change: Change, reason: str
) -> None:
    edit_manifest(copy, change)
    with pytest.raises(ArtifactError, match=reason):
        Artifact.open(copy)


CHANGED: list[Change] = [
    in_model(head_dim=1),
    in_model(num_kv_heads=1),
    in_model(num_layers=1),
    in_model(vocab_size=2**20),
    in_settings(dtype="bfloat16"),
    in_settings(num_blocks=4),
    in_settings(max_num_seqs=3),
    in_graph(0, graph_key="0" * 64),
    lambda manifest: manifest["weights"]["aliases"].update(x="absent"),
    lambda manifest: manifest["requirements"].clear(),
    lambda manifest: manifest.update(artifact_id="0" * 16),
]


@pytest.mark.parametrize("change", CHANGED)
def test_a_manifest_that_does_not_say_what_was_compiled_is_refused(
    copy: Path, change: Change
) -> None:
    edit_manifest(copy, change, keep_id=True)
    with pytest.raises(ArtifactError, match="was changed after compiling"):
        Artifact.open(copy)


@pytest.mark.parametrize("artifact_id", ["/tmp/elsewhere", "../../x", "a\0b", "", 7, "G" * 16])
def test_an_id_that_is_no_id_leads_nowhere(copy: Path, artifact_id: object) -> None:
    edit_manifest(copy, lambda manifest: manifest.update(artifact_id=artifact_id), keep_id=True)
    with pytest.raises(ArtifactError, match="damaged at `artifact_id`"):
        Artifact.open(copy)


def test_how_long_a_build_took_is_no_part_of_the_id(copy: Path) -> None:
    edit_manifest(copy, in_graph(0, compile_seconds=1e6), keep_id=True)
    Artifact.open(copy)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema_version":' * 100_000, "9" * 5000])
def test_a_manifest_that_no_reader_takes_is_refused(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text)
    with pytest.raises(ArtifactError, match="cannot be read"):
        Artifact.open(copy)


def test_the_id_is_that_of_the_content_however_it_is_written(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    Artifact.open(copy)


def test_a_generation_config_that_is_no_object_is_refused(copy: Path) -> None:
    path = copy / "generation_config.json"
    path.write_text("[]")
    edit_manifest(copy, lambda manifest: describe_again(manifest, copy, path))
    with pytest.raises(ArtifactError, match=r"generation_config\.json` is no JSON object"):
        LLM(copy)


def describe_again(manifest: dict[str, Any], artifact: Path, path: Path) -> None:
    entry = describe_file(artifact, path).model_dump()
    others = [file for file in manifest["files"] if file["path"] != entry["path"]]
    manifest["files"] = [*others, entry]
