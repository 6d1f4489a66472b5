"""Every byte of an artifact against its checksum: damage is found, and named by its file."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from artifact_damage import damaged
from conftest import Compiled

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.artifact.files import Damage, check_files
from neuron_llm.artifact.manifest import Manifest, read_manifest
from neuron_llm.artifact.manifest_entries import NO_CHECKSUM, is_sealed, sealed
from neuron_llm.errors import ArtifactError


@pytest.fixture
def copy(llama: Compiled, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama.artifact, tmp_path / "copy"))


def test_a_good_artifact_is_whole_and_every_file_is_looked_at(llama: Compiled) -> None:
    seen: list[str] = []
    checked = check_files(llama.artifact, seen.append)
    on_disk = [p for p in llama.artifact.rglob("*") if p.is_file()]
    assert (checked.damages, checked.unlisted) == ((), ())
    assert checked.num_files == len(on_disk) == len(seen) + 1
    others = [p for p in on_disk if p.name != "manifest.json"]
    assert checked.num_bytes == sum(p.stat().st_size for p in others)


def test_every_damaged_file_is_named_and_not_the_first_alone(copy: Path) -> None:
    (copy / "config.json").unlink()
    (copy / "weights.safetensors").write_bytes(b"")
    graph = copy / "graphs" / "prefill_t8" / "graph.so"
    content = bytearray(graph.read_bytes())
    content[-1] ^= 1
    graph.write_bytes(content)
    (copy / "notes.txt").write_text("mine")
    checked = check_files(copy)
    reasons = {damage.path: damage.reason for damage in checked.damages}
    assert reasons.keys() == {"config.json", "weights.safetensors", "graphs/prefill_t8/graph.so"}
    assert reasons["config.json"] == "missing"
    assert reasons["weights.safetensors"].startswith("0 bytes; the manifest says ")
    assert reasons["graphs/prefill_t8/graph.so"] == "its checksum differs from the manifest's"
    assert checked.unlisted == ("notes.txt",)


def test_a_manifest_that_cannot_be_read_is_the_damage(copy: Path) -> None:
    (copy / "manifest.json").write_text("{")
    (damage,) = check_files(copy).damages
    assert damage.path == "manifest.json" and "cannot be read" in damage.reason


def test_a_byte_of_the_manifest_that_nothing_reads_counts_too(copy: Path) -> None:
    path = copy / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"compile_seconds": ', '"compile_seconds":  ', 1))
    Artifact.open(copy)
    damage = Damage("manifest.json", "its text does not have the checksum at its end")
    assert check_files(copy).damages == (damage,)


def test_what_is_no_artifact_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no artifact"):
        check_files(tmp_path)


def test_the_checksum_is_that_of_the_text_with_zeros_in_its_place() -> None:
    text = f'{{\n "a": 1,\n "checksum": "{NO_CHECKSUM}"\n}}\n'.encode()
    whole = sealed(text)
    assert sealed(whole) == whole and is_sealed(whole) and not is_sealed(text)
    for index in range(len(whole)):
        other = whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :]
        assert not is_sealed(other) and not is_sealed(whole[:index])


def files_of(manifest: Manifest) -> list[str]:
    """A name for each file, the manifest's as often as all others together."""
    paths = [entry.path for entry in manifest.all_files()]
    return [*paths, *["manifest.json"] * (len(paths) // 2)]


def damage_at_random(artifact: Path, num_times: int, seed: int) -> None:
    manifest = read_manifest(artifact)
    rng = random.Random(seed)
    for _ in range(num_times):
        path = rng.choice(files_of(manifest))
        with damaged(artifact / path, rng):
            assert [damage.path for damage in check_files(artifact).damages] == [path]
            # Of the manifest, loading checks what it says; weights are hashed while they load.
            if path not in ("manifest.json", "weights.safetensors"):
                with pytest.raises(ArtifactError):
                    Artifact.open(artifact)
    assert check_files(artifact).damages == ()


def test_random_damage_is_found_and_named(copy: Path) -> None:
    damage_at_random(copy, 20, seed=0)


@pytest.mark.prove
def test_random_damage_is_found_and_named_200_times(copy: Path) -> None:
    damage_at_random(copy, 200, seed=1)
