"""What the compile cache holds, and that pruning leaves alone what others use and build."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from cache_factory import DAY, NEW, OLD, add_graph
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.inventory import (
    CacheEntry,
    PruneLimits,
    choose_entries,
    list_cache,
    prune_cache,
)

ALL = PruneLimits(max_age_s=0)


def names(entries: tuple[CacheEntry, ...]) -> list[str]:
    return [entry.name for entry in entries]


def test_everything_is_listed_with_its_kind_size_and_age_the_last_used_first(
    tmp_path: Path,
) -> None:
    add_graph(tmp_path, OLD, size=100, age_s=3 * DAY)
    add_graph(tmp_path, "libneuron_llm_operators-x", size=10, age_s=2 * DAY)
    checkpoint = tmp_path / "checkpoints" / "c" / "tokenizer"
    checkpoint.mkdir(parents=True)
    (checkpoint / "tokenizer.json").write_bytes(bytes(7))
    log = GraphCache(tmp_path).log_path("prefill_t8", "0" * 64)
    log.write_text("warning")
    os.utime(log, (time.time() - DAY,) * 2)
    work_dir = tmp_path / "neuronx-cc" / "prefill_t8-000000000000"
    work_dir.mkdir(parents=True)
    (work_dir / "log-neuron-cc.txt").write_bytes(bytes(30))
    os.utime(work_dir, (time.time() - DAY / 2,) * 2)
    entries = list_cache(tmp_path)
    assert [(e.kind, e.name) for e in entries] == [
        ("checkpoint", "c"),
        ("compiler", "prefill_t8-000000000000"),
        ("log", "prefill_t8-000000000000.log"),
        ("library", "libneuron_llm_operators-x"),
        ("graph", OLD),
    ]
    assert [entry.size_bytes for entry in entries[:3]] == [7, 30, 7]
    assert entries[4].size_bytes > 100, "the list of checksums counts too"
    assert time.time() - entries[4].last_used == pytest.approx(3 * DAY, abs=60)


def test_no_cache_is_empty_and_is_not_made(tmp_path: Path) -> None:
    assert list_cache(tmp_path / "none") == []
    assert prune_cache(tmp_path / "none", ALL, dry_run=False).kept == ()
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_used_for_so_long_goes_with_its_key(tmp_path: Path) -> None:
    add_graph(tmp_path, OLD, size=1, age_s=31 * DAY)
    add_graph(tmp_path, NEW, size=1, age_s=29 * DAY)
    pruned = prune_cache(tmp_path, PruneLimits(max_age_s=30 * DAY), dry_run=False)
    assert (names(pruned.removed), names(pruned.kept)) == ([OLD], [NEW])
    assert [path.name for path in (tmp_path / "graphs").iterdir()] == [NEW]
    assert [path.name for path in (tmp_path / "keys").iterdir()] == [f"config-{NEW}"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_dry_run_tells_the_same_and_removes_nothing(tmp_path: Path) -> None:
    add_graph(tmp_path, OLD, size=1, age_s=DAY)
    assert names(prune_cache(tmp_path, ALL, dry_run=True).removed) == [OLD]
    assert GraphCache(tmp_path).find(f"config-{OLD}") is not None


def test_using_a_graph_makes_it_young(tmp_path: Path) -> None:
    add_graph(tmp_path, OLD, size=1, age_s=31 * DAY)
    assert GraphCache(tmp_path).find(f"config-{OLD}") is not None
    assert prune_cache(tmp_path, PruneLimits(max_age_s=DAY), dry_run=False).removed == ()


def test_what_a_running_compile_has_used_stays_and_the_rest_goes(tmp_path: Path) -> None:
    add_graph(tmp_path, OLD, size=1, age_s=DAY)
    add_graph(tmp_path, NEW, size=1, age_s=DAY)
    cache = GraphCache(tmp_path)
    with cache.session():
        assert cache.find(f"config-{NEW}") is not None
        pruned = prune_cache(tmp_path, ALL, dry_run=False)
        assert (names(pruned.removed), names(pruned.in_use)) == ([OLD], [NEW])
        assert cache.find(f"config-{NEW}") is not None
    assert names(prune_cache(tmp_path, ALL, dry_run=False).removed) == [NEW]


def _build(root: Path, is_building: Event, may_end: Event) -> None:
    cache = GraphCache(root)
    with cache.session(), cache.lock(NEW), cache.new_entry(NEW) as directory:
        (directory / "graph.so").write_text("half")
        is_building.set()
        may_end.wait(60)
        (directory / "graph.so").write_text("whole")
    # The key comes after the entry, and pruning must find neither without the other.
    cache.link(f"config-{NEW}", NEW)


def test_what_another_process_is_building_is_never_removed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    is_building, may_end = context.Event(), context.Event()
    process = context.Process(target=_build, args=(tmp_path, is_building, may_end))
    process.start()
    assert is_building.wait(60)
    pruned = prune_cache(tmp_path, ALL, dry_run=False)
    assert pruned.removed == ()
    may_end.set()
    process.join(60)
    assert process.exitcode == 0
    found = GraphCache(tmp_path).find(f"config-{NEW}")
    assert found is not None and (found / "graph.so").read_text() == "whole"


def _begin(root: Path, has_begun: Event) -> None:
    with GraphCache(root).session():
        has_begun.set()
        time.sleep(60)


def test_a_killed_compile_uses_nothing_any_more(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    has_begun = context.Event()
    process = context.Process(target=_begin, args=(tmp_path, has_begun))
    process.start()
    assert has_begun.wait(60)
    add_graph(tmp_path, NEW, size=1)
    assert names(prune_cache(tmp_path, ALL, dry_run=False).in_use) == [NEW]
    process.kill()
    process.join()
    assert names(prune_cache(tmp_path, ALL, dry_run=False).removed) == [NEW]
    assert list((tmp_path / "sessions").iterdir()) == []


ENTRIES = st.lists(
    st.builds(
        lambda index, size, used: CacheEntry("graph", Path(str(index)), size, used),
        st.integers(0, 10**6),
        st.integers(0, 50),
        st.integers(0, 100),
    ),
    max_size=12,
    unique_by=lambda entry: entry.path,
)


@given(
    ENTRIES, st.none() | st.integers(0, 100), st.none() | st.integers(0, 300), st.integers(0, 100)
)
def test_limits_hold_for_all_that_may_go_and_the_last_used_stays(
    entries: list[CacheEntry], max_age: int | None, max_size: int | None, began: int
) -> None:
    limits = PruneLimits(max_age, max_size)
    chosen, in_use = choose_entries(entries, limits, began=began, now=100)
    assert all(entry.last_used < began for entry in chosen)
    assert all(entry.last_used >= began for entry in in_use)
    kept = [entry for entry in entries if entry not in chosen]
    free = [entry for entry in kept if entry.last_used < began]
    if max_age is not None:
        assert all(100 - entry.last_used < max_age for entry in free)
    if max_size is not None and free:
        assert sum(entry.size_bytes for entry in kept) <= max_size
    if max_age is None and max_size is None:
        assert chosen == in_use == []
    if max_age is None and chosen and free:
        assert max(e.last_used for e in chosen) <= min(e.last_used for e in free)
