"""An artifact in one file: what comes out is what went in, and nothing else comes out."""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from artifact_damage import cut_off, flipped
from conftest import Compiled

from neuron_llm.artifact.files import check_files
from neuron_llm.artifact.manifest import MANIFEST_FILE, read_manifest
from neuron_llm.artifact.packed import LIST_FILE, pack_artifact, unpack_artifact
from neuron_llm.errors import ArtifactError


@pytest.fixture
def packed(llama: Compiled, tmp_path: Path) -> Path:
    file = tmp_path / "tiny.tar"
    pack_artifact(llama.artifact, file, force=False)
    return file


def content_of(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def refusal(file: Path, destination: Path) -> str:
    """Unpack what must be refused, and see that nothing is left of it."""
    before = sorted(os.listdir(destination.parent))
    with pytest.raises(ArtifactError) as caught:
        unpack_artifact(file, destination)
    assert sorted(os.listdir(destination.parent)) == before
    return caught.value.message


def test_unpacking_gives_back_every_byte(packed: Path, llama: Compiled, tmp_path: Path) -> None:
    unpacked = unpack_artifact(packed, tmp_path / "other")
    assert content_of(tmp_path / "other") == content_of(llama.artifact)
    assert check_files(tmp_path / "other").damages == ()
    assert unpacked.num_files == len(content_of(llama.artifact))
    assert sorted(os.listdir(tmp_path)) == ["other", "tiny.tar"]


def test_an_artifact_is_packed_the_same_wherever_it_lies(
    packed: Path, llama: Compiled, tmp_path: Path
) -> None:
    copy = shutil.copytree(llama.artifact, tmp_path / "copy")
    (copy / "notes.txt").write_text("not part of it")
    pack_artifact(copy, tmp_path / "again.tar", force=False)
    assert (tmp_path / "again.tar").read_bytes() == packed.read_bytes()


def test_other_programs_can_unpack_and_check_it(
    packed: Path, llama: Compiled, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    subprocess.run(["tar", "xf", packed, "-C", tmp_path / "plain"], check=True)
    command = ["sha256sum", "--check", "--quiet", LIST_FILE]
    subprocess.run(command, cwd=tmp_path / "plain", check=True)
    (tmp_path / "plain" / LIST_FILE).unlink()
    assert content_of(tmp_path / "plain") == content_of(llama.artifact)


def test_what_exists_is_not_overwritten(packed: Path, llama: Compiled, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is in the way"):
        pack_artifact(llama.artifact, packed, force=False)
    pack_artifact(llama.artifact, packed, force=True)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        assert "is in the way" in refusal(packed, tmp_path / name)


def test_an_artifact_is_not_packed_over_a_file_of_its_own(llama: Compiled, tmp_path: Path) -> None:
    copy = shutil.copytree(llama.artifact, tmp_path / "copy")
    (tmp_path / "link").symlink_to(copy)
    for file in (copy / "weights.safetensors", tmp_path / "link" / "graphs" / "tiny.tar"):
        with pytest.raises(ArtifactError, match="lies in the artifact that is packed"):
            pack_artifact(copy, file, force=True)
    assert content_of(copy) == content_of(llama.artifact)


def test_a_damaged_artifact_is_not_packed(llama: Compiled, tmp_path: Path) -> None:
    copy = shutil.copytree(llama.artifact, tmp_path / "copy")
    weights = copy / "weights.safetensors"
    weights.write_bytes(flipped(weights.read_bytes(), random.Random(0)))
    with pytest.raises(ArtifactError, match=r"checksum of `weights\.safetensors` differs"):
        pack_artifact(copy, tmp_path / "tiny.tar", force=False)
    assert os.listdir(tmp_path) == ["copy"]


def member(path: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type = kind
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname = "/etc/passwd"
    return info


def write_tar(file: Path, members: list[tuple[tarfile.TarInfo, bytes]], listed: list[str]) -> None:
    """Write an archive as somebody might who wants to get at more than a directory."""
    lines = [f"{hashlib.sha256(b'x').hexdigest()}  {path}\n" for path in listed]
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for info, content in [(member(LIST_FILE), "".join(lines).encode()), *members]:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def write_archive(file: Path, files: Mapping[str, bytes]) -> None:
    """Write files as `pack_artifact` would, whatever they are."""
    lines = [f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in files.items()]
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for path, content in {LIST_FILE: "".join(lines).encode(), **files}.items():
            info = member(path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    "path", ["../escaped", "/tmp/escaped", "a/../../escaped", "a/./b", "a//b", ".", "a/"]
)
def test_a_path_that_leaves_the_directory_is_refused_by_name(path: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "bad.tar", [(member(path), b"x")], [path])
    assert f"`{path}` would lie outside" in refusal(tmp_path / "bad.tar", tmp_path / "out")


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
    ],
)  # fmt: skip
def test_links_and_devices_are_refused_by_name(kind: bytes, tmp_path: Path) -> None:
    write_tar(tmp_path / "bad.tar", [(member("graph.so", kind), b"")], ["graph.so"])
    assert "`graph.so` does not begin" in refusal(tmp_path / "bad.tar", tmp_path / "out")


@pytest.mark.parametrize(
    "listed",
    [["a", "a"], ["a", "a/b"], ["a/b", "a"], [LIST_FILE], []],
    ids=["twice", "below", "above", "list", "none"],
)
def test_a_list_that_contradicts_itself_is_refused(listed: list[str], tmp_path: Path) -> None:
    write_tar(tmp_path / "bad.tar", [(member(path), b"x") for path in listed], listed)
    refusal(tmp_path / "bad.tar", tmp_path / "out")


@pytest.mark.parametrize("size_bytes", [-512, -5])
@pytest.mark.parametrize("path", [LIST_FILE, "graph.so"])
def test_a_size_below_zero_is_refused(path: str, size_bytes: int, tmp_path: Path) -> None:
    header = member(path)
    header.size = size_bytes
    members = io.BytesIO()
    if path != LIST_FILE:
        listed = f"{hashlib.sha256(b'').hexdigest()}  {path}\n".encode()
        first = member(LIST_FILE)
        first.size = len(listed)
        members.write(first.tobuf(tarfile.GNU_FORMAT) + listed.ljust(tarfile.BLOCKSIZE, b"\0"))
    members.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(tarfile.RECORDSIZE))
    (tmp_path / "bad.tar").write_bytes(members.getvalue())
    assert f"`{path}` does not begin" in refusal(tmp_path / "bad.tar", tmp_path / "out")


def test_an_artifact_of_another_version_is_told_by_the_name_of_the_packed_file(
    llama: Compiled, tmp_path: Path
) -> None:
    manifest = {MANIFEST_FILE: b'{"schema_version": 1}'}
    write_archive(tmp_path / "old.tar", {**content_of(llama.artifact), **manifest})
    message = refusal(tmp_path / "old.tar", tmp_path / "out")
    assert message.startswith(f"`{tmp_path / 'old.tar'}` holds no artifact that can be used")
    assert "schema version `1`" in message


CHANGES: list[Callable[[bytes], bytes]] = [
    lambda archive: b"",
    lambda archive: b"x" * 2000,
    lambda archive: archive[:512],
    lambda archive: archive[:-1],
    lambda archive: archive + b"\0",
    lambda archive: archive + archive,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_packing_does_not_write_is_refused(
    change: Callable[[bytes], bytes], packed: Path, tmp_path: Path
) -> None:
    packed.write_bytes(change(packed.read_bytes()))
    assert "is damaged, or no packed artifact" in refusal(packed, tmp_path / "out")


def test_files_that_the_manifest_does_not_name_are_refused(llama: Compiled, tmp_path: Path) -> None:
    write_archive(tmp_path / "bad.tar", {**content_of(llama.artifact), "more.so": b"code"})
    message = refusal(tmp_path / "bad.tar", tmp_path / "out")
    assert "does not hold the files that its manifest names" in message


def damage_at_random(packed: Path, out: Path, num_times: int, seed: int) -> None:
    content = packed.read_bytes()
    rng = random.Random(seed)
    for _ in range(num_times):
        change = cut_off if rng.random() < 0.3 else flipped
        packed.write_bytes(change(content, rng))
        refusal(packed, out)


def test_random_damage_is_found(packed: Path, tmp_path: Path) -> None:
    damage_at_random(packed, tmp_path / "out", 20, seed=0)


@pytest.mark.prove
def test_random_damage_is_found_200_times(packed: Path, tmp_path: Path) -> None:
    damage_at_random(packed, tmp_path / "out", 200, seed=1)


def test_an_unpacked_artifact_reads_as_the_one_that_was_packed(
    packed: Path, llama: Compiled, tmp_path: Path
) -> None:
    unpack_artifact(packed, tmp_path / "a name with spaces")
    assert read_manifest(tmp_path / "a name with spaces") == read_manifest(llama.artifact)
