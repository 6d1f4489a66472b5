from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from neuron_llm.backends.build.cache import GraphCache, content_key
from neuron_llm.errors import NeuronLLMError


def test_content_key_ignores_the_order_of_keys_and_sees_every_value() -> None:
    assert content_key({"a": 1, "b": [2]}) == content_key({"b": [2], "a": 1})
    assert content_key({"a": 1}) != content_key({"a": "1"})
    # A golden value: the key must not change from one version to the next by accident.
    assert content_key({"bucket": "prefill_t128", "é": None}) == (
        "09d88abfe8387fdcd154b64056e771cce49fc6faa856e1de75e68ef83b19d91f"
    )


def test_an_entry_is_found_only_when_it_is_whole_and_linked(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path)
    with cache.new_entry("graph") as directory:
        (directory / "graph.so").write_text("x")
        assert cache.graph_directory("graph") is None
    assert cache.find("config") is None
    cache.link("config", "graph")
    found = cache.find("config")
    assert found is not None and (found / "graph.so").read_text() == "x"


def test_a_failed_build_leaves_no_entry(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path)
    with pytest.raises(RuntimeError), cache.new_entry("graph"):
        raise RuntimeError("killed")
    assert cache.graph_directory("graph") is None
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_link_to_a_removed_graph_is_a_miss(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path)
    cache.link("config", "gone")
    assert cache.find("config") is None


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NeuronLLMError, match="cannot be written"):
        GraphCache(tmp_path / "file")


def _hold(root: Path, started: str) -> None:
    with GraphCache(root).lock("key"):
        Path(started).touch()
        time.sleep(60)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    started = tmp_path / "started"
    process = multiprocessing.get_context("spawn").Process(
        target=_hold, args=(tmp_path / "cache", str(started))
    )
    process.start()
    while not started.exists():
        time.sleep(0.01)
    process.kill()
    process.join()
    before = time.monotonic()
    with GraphCache(tmp_path / "cache").lock("key"):
        assert time.monotonic() - before < 5


def test_locks_that_another_user_made_can_be_held(tmp_path: Path) -> None:
    with GraphCache(tmp_path).lock("key"):
        pass
    locks = sorted((tmp_path / "locks").iterdir())
    for lock in locks:
        lock.chmod(0o444)
    cache, _ = filled(tmp_path)
    with cache.lock("key"):
        assert cache.find("config") is not None
    assert {path.name for path in locks} >= {"key", "tmp"}


def test_the_cache_can_be_moved(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path / "old")
    with cache.new_entry("graph") as directory:
        (directory / "f").write_text("x")
    cache.link("config", "graph")
    os.rename(tmp_path / "old", tmp_path / "new")
    assert GraphCache(tmp_path / "new").find("config") == tmp_path / "new" / "graphs" / "graph"


def filled(root: Path) -> tuple[GraphCache, Path]:
    """A cache with one linked entry of two files, and the entry."""
    cache = GraphCache(root)
    with cache.new_entry("graph") as directory:
        (directory / "graph.so").write_text("machine code")
        (directory / "graph.json").write_text("{}")
    cache.link("config", "graph")
    return cache, root / "graphs" / "graph"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("graph.so", "machine"),
        ("graph.so", "machine cope"),
        ("graph.so", ""),
        ("graph.so", None),
        ("graph.json", None),
        ("graph.json", "[]"),
        ("checksums.json", None),
        ("checksums.json", "{"),
        ("checksums.json", "[]"),
        ("more", "what nobody built"),
    ],
)
def test_a_damaged_entry_is_a_miss_and_makes_room_for_a_new_one(
    name: str, content: str | None, tmp_path: Path
) -> None:
    cache, entry = filled(tmp_path)
    assert cache.find("config") == entry
    if content is None:
        (entry / name).unlink()
    else:
        (entry / name).write_text(content)
    assert cache.find("config") is None
    assert not entry.exists()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert filled(tmp_path)[0].find("config") == entry


def test_a_damaged_entry_is_not_handed_out_by_its_content_either(tmp_path: Path) -> None:
    cache, entry = filled(tmp_path)
    (entry / "graph.so").write_text("")
    with cache.lock("graph"):
        assert cache.graph_directory("graph") is None


@pytest.mark.parametrize("text", [b"", b"..", b".", b"a/b", b"\xff\xfe"])
def test_a_damaged_link_is_a_miss_and_costs_no_entry(text: bytes, tmp_path: Path) -> None:
    cache, entry = filled(tmp_path)
    (tmp_path / "keys" / "config").write_bytes(text)
    assert cache.find("config") is None
    assert (entry / "graph.so").is_file()


def test_what_a_killed_process_left_is_swept_when_nobody_is_at_work(tmp_path: Path) -> None:
    cache = GraphCache(tmp_path)
    (tmp_path / "tmp" / "left").mkdir()
    (tmp_path / "tmp" / "left" / "graph.so").write_text("half")
    (tmp_path / "tmp" / "file").write_text("")
    with cache.scratch() as scratch:
        GraphCache(tmp_path)
        assert scratch.is_dir() and (tmp_path / "tmp" / "left").is_dir()
    GraphCache(tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []
