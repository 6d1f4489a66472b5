"""Where an artifact may go, found out before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import LLAMA_CONFIG, Compiled, compile_tiny

from neuron_llm.artifact.latest import mark_latest
from neuron_llm.artifact.manifest import read_manifest
from neuron_llm.compile.destination import check_destination, exchange
from neuron_llm.errors import ArtifactError


def refusal(destination: Path, *, force: bool = False) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        check_destination(destination, {"block_size": 4}, force=force)
    assert caught.value.hint is not None
    return caught.value


def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path: Path) -> None:
    check_destination(tmp_path / "a" / "b" / "tiny", {}, force=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        error = refusal(folder / "tiny")
        assert error.message == f"artifacts cannot be written to `{folder}`: not a directory"
        assert error.hint == "name another folder with `--artifacts-dir`"


def test_a_folder_that_takes_no_files_is_refused() -> None:
    assert "cannot be written to `/proc`" in refusal(Path("/proc/tiny")).message


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "artifacts").symlink_to("nowhere")
    assert "no such file or directory" in refusal(tmp_path / "artifacts" / "tiny").message


def test_something_else_in_place_of_the_latest_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    error = refusal(tmp_path / "tiny", force=True)
    assert error.message == (
        f"`{tmp_path}/latest` is in the way: it exists and is no link to the latest artifact"
    )
    assert error.hint == "move it, or name another folder with `--artifacts-dir`"


def test_a_latest_link_that_cannot_be_set_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "tiny").mkdir()
    with pytest.raises(IsADirectoryError):
        mark_latest(tmp_path / "tiny")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "tiny"]


def test_another_configuration_is_refused_before_its_graphs_are_built(
    llama: Compiled, compile_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("the graphs have been looked at")

    compile_tiny(llama.model, LLAMA_CONFIG, compile_cache, tmp_path)
    monkeypatch.setattr("neuron_llm.backends.cpu.backend.CpuBackend.compile_graphs", started)
    other = LLAMA_CONFIG.replace("block_size: 4", "block_size: 8")
    with pytest.raises(ArtifactError, match="another configuration: `block_size` differs"):
        compile_tiny(llama.model, other, compile_cache, tmp_path)


def test_an_equal_configuration_and_force_are_let_through(llama: Compiled) -> None:
    config = read_manifest(llama.artifact).config
    check_destination(llama.artifact, config, force=False)
    check_destination(llama.artifact, {**config, "block_size": 8}, force=True)


def test_two_directories_change_places(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "file").read_text() == "b"
    assert (tmp_path / "b" / "file").read_text() == "a"


def test_a_path_that_is_missing_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "b")


def test_a_system_that_cannot_exchange_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    assert not exchange(tmp_path / "a", tmp_path / "b")
