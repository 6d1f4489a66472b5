"""The search for two lists of sizes, against trying them all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.advice import decode_search
from neuron_llm.report.advice.decode_search import SizeSearch, Table


def lists(num: int) -> Iterator[tuple[int, ...]]:
    for length in range(num):
        for chosen in combinations(range(num - 1), length):
            yield (*chosen, num - 1)


def time_of(steps: Table, seconds: Table, rows: tuple[int, ...], columns: tuple[int, ...]) -> float:
    total = 0.0
    for (row, column), num in np.ndenumerate(steps):
        held_by = min(r for r in rows if r >= row), min(c for c in columns if c >= column)
        total += num * seconds[held_by]
    return total


def brute_force(steps: Table, seconds: Table, max_graphs: int) -> dict[int, float]:
    best: dict[int, float] = {}
    for rows in lists(steps.shape[0]):
        for columns in lists(steps.shape[1]):
            num = len(rows) * len(columns)
            if num <= max_graphs:
                time = time_of(steps, seconds, rows, columns)
                best[num] = min(time, best.get(num, time))
    return best


@st.composite
def tables(draw: st.DrawFn) -> tuple[Table, Table]:
    """Draw tables of up to five by five; times are whole numbers in any order."""
    shape = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    cells = shape[0] * shape[1]
    steps = draw(st.lists(st.integers(0, 9), min_size=cells, max_size=cells))
    seconds = draw(st.lists(st.integers(1, 20), min_size=cells, max_size=cells))
    return np.array(steps, float).reshape(shape), np.array(seconds, float).reshape(shape)


@given(tables(), st.integers(1, 25))
def test_it_finds_what_trying_all_lists_finds(tables: tuple[Table, Table], max_graphs: int) -> None:
    search = SizeSearch(*tables, max_graphs)
    assert search.is_exact
    assert {n: pair.seconds for n, pair in search.best.items()} == brute_force(*tables, max_graphs)
    for num_graphs, pair in search.best.items():
        assert pair.num_graphs == num_graphs
        assert time_of(*tables, pair.rows, pair.columns) == pair.seconds


def many_columns() -> tuple[Table, Table]:
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 9, (3, 10)).astype(float)
    seconds = rng.integers(1, 4, (3, 10)).cumsum(axis=0).cumsum(axis=1).astype(float)
    return steps, seconds


def test_rows_are_tried_where_columns_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = many_columns()
    # 36 lists of 3 columns would take 36 * 3 * 3 cells; those of all rows take no more than 300.
    monkeypatch.setattr(decode_search, "_CELLS_PER_LIST", 0)
    monkeypatch.setattr(decode_search, "_MAX_CELLS", 300)
    search = SizeSearch(*tables, 12)
    assert search.is_exact
    assert {n: pair.seconds for n, pair in search.best.items()} == brute_force(*tables, 12)


def test_columns_in_groups_are_said_not_to_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = many_columns()
    best = brute_force(*tables, 12)
    monkeypatch.setattr(decode_search, "_CELLS_PER_LIST", 0)
    monkeypatch.setattr(decode_search, "_MAX_CELLS", 60)
    search = SizeSearch(*tables, 12)
    assert not search.is_exact
    assert search.best[1].seconds == best[1]
    for num_graphs, pair in search.best.items():
        assert pair.seconds >= best[num_graphs]
        assert time_of(*tables, pair.rows, pair.columns) == pair.seconds
        assert (pair.rows[-1], pair.columns[-1]) == (2, 9)
