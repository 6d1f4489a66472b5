"""`neuron-llm cache`: what is there, and making room."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_factory import DAY, NEW, OLD, add_graph
from cli_runner import run_cli

from neuron_llm.cli.terminal.quantities import parse_bytes, parse_seconds
from neuron_llm.quantities import shown_span


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Two graphs, one of them old."""
    add_graph(tmp_path / "cache", OLD, size=5000, age_s=40 * DAY)
    add_graph(tmp_path / "cache", NEW, size=3000, age_s=2 * DAY)
    return tmp_path / "cache"


def test_list_shows_sizes_and_ages(cache: Path) -> None:
    ended = run_cli("cache", "list", "--cache-dir", cache)
    assert (ended.code, ended.stderr) == (0, "")
    header, new, old, _, total = ended.stdout.splitlines()
    assert header.split() == ["kind", "name", "size", "last", "used"]
    assert new.split()[:2] == ["graph", NEW[:16]] and new.endswith("2 d")
    assert old.endswith("40 d")
    assert total.startswith(f"2 entries in {cache}, ")


def test_list_as_json_adds_up(cache: Path) -> None:
    shown = run_cli("cache", "list", "--cache-dir", cache, "--json").document
    assert [entry["name"] for entry in shown["entries"]] == [NEW, OLD]
    assert shown["total_bytes"] == sum(entry["size_bytes"] for entry in shown["entries"])
    assert shown["entries"][1]["last_used_age_s"] == pytest.approx(40 * DAY, abs=60)


def test_prune_takes_an_age_or_a_size(cache: Path) -> None:
    prune = ("cache", "prune", "--cache-dir", cache)
    told = run_cli(*prune, "--older-than", "30d", "--dry-run")
    assert told.stderr.startswith("would remove 1 entry, ")
    assert OLD[:16] in told.stdout and NEW[:16] not in told.stdout
    assert run_cli(*prune).stderr.startswith("removed 0 entries, ")
    by_size = run_cli(*prune, "--max-size", "4KiB", "--json").document
    assert [entry["name"] for entry in by_size["removed"]] == [OLD]
    assert run_cli(*prune, "--older-than", "1d").stdout.splitlines()[1].endswith("2 d")
    assert run_cli("cache", "list", "--cache-dir", cache).stdout.startswith("0 entries in ")


@pytest.mark.parametrize("arguments", [["--older-than", "30"], ["--max-size", "5GB"]])
def test_what_is_no_age_or_size_is_a_fault_of_the_command_line(
    arguments: list[str], cache: Path
) -> None:
    assert run_cli("cache", "prune", "--cache-dir", cache, *arguments).code == 2


def test_quantities_are_read_and_shown() -> None:
    assert parse_seconds("30d") == 30 * DAY and parse_seconds("1.5h") == 5400
    assert parse_bytes("5GiB") == 5 * 2**30 and parse_bytes("4096") == 4096
    assert [shown_span(s) for s in (0, 59, 60, 7200, 90000)] == ["0 s", "59 s", "1 m", "2 h", "1 d"]
