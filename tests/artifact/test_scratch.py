"""Where artifacts are made, and what killed compiles leave there."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from neuron_llm.artifact.scratch import Leftover, artifact_scratch, prune_artifacts
from neuron_llm.errors import ArtifactError


def test_a_scratch_directory_goes_with_its_block(tmp_path: Path) -> None:
    with artifact_scratch(tmp_path) as directory:
        (directory / "tiny").mkdir()
    with pytest.raises(RuntimeError), artifact_scratch(tmp_path) as directory:
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def _make(folder: Path, is_making: Event) -> None:
    with artifact_scratch(folder) as directory:
        (directory / "weights").write_bytes(bytes(1000))
        is_making.set()
        time.sleep(60)


def test_only_what_no_living_process_has_is_removed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    is_making = context.Event()
    process = context.Process(target=_make, args=(tmp_path, is_making))
    process.start()
    assert is_making.wait(60)
    (scratch,) = tmp_path.iterdir()
    assert prune_artifacts(tmp_path, dry_run=False) == []
    assert (scratch / "weights").is_file()
    process.kill()
    process.join()
    leftover = Leftover(scratch, 1000)
    assert prune_artifacts(tmp_path, dry_run=True) == [leftover]
    assert (scratch / "weights").is_file()
    assert prune_artifacts(tmp_path, dry_run=False) == [leftover]
    assert list(tmp_path.iterdir()) == []


def test_artifacts_and_whatever_else_is_there_stay(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "latest").symlink_to("tiny")
    (tmp_path / ".compile-notes.txt").write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".compile-link").symlink_to(elsewhere)
    assert prune_artifacts(tmp_path, dry_run=False) == []
    assert len(list(tmp_path.iterdir())) == 5


def test_a_link_that_never_became_the_latest_goes_when_it_is_old(tmp_path: Path) -> None:
    link = tmp_path / ".latest-123"
    link.symlink_to("tiny")
    assert prune_artifacts(tmp_path, dry_run=False) == []
    os.utime(link, (0, 0), follow_symlinks=False)
    assert prune_artifacts(tmp_path, dry_run=False) == [Leftover(link, 0)]
    assert not os.path.lexists(link)


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is no folder of artifacts"):
        prune_artifacts(tmp_path / "none", dry_run=False)
