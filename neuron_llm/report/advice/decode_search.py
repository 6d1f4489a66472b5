"""Two lists of sizes, one for each axis of a table, that take least time together. Knows no torch.

The table counts steps by what they need of each axis, and says what a step takes in a graph of each
pair of sizes. A step runs in the smallest sizes that hold it; each list ends in the last size. With
the list of one axis given, the best other one is found by dynamic programming:

    least_k(b) = min over a < b of  least_(k-1)(a) + the time of the steps of (a, b] in b

So the pairs are searched by trying every list of one axis and solving for the other, whichever axis
has few enough lists. Where both have too many, the second axis is only looked at in groups of
neighbours, by the last of each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]

_MAX_CELLS = 100_000_000
"""Most cells of dynamic programming for the lists of one length: about a second's work."""
_CELLS_PER_LIST = 1000
"""What a list costs beside its dynamic programming."""
_BATCH_CELLS = 1 << 20


@dataclass(frozen=True)
class SizePair:
    """A list for each axis, as ascending indices.

    Attributes:
        rows: of the first axis.
        columns: of the second axis.
        seconds: that all steps take.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    seconds: float

    @property
    def num_graphs(self) -> int:
        """How many pairs of sizes there are."""
        return len(self.rows) * len(self.columns)


class SizeSearch:
    """Searches the best pair of lists for each number of graphs.

    Args:
        steps: how many steps need each pair of sizes, `[num_rows, num_columns]`.
        seconds: of a step in each pair of sizes, of the same shape.
        max_graphs: most pairs of sizes.

    Attributes:
        best: by number of graphs, the pair of lists with just so many that takes least time.
        is_exact: whether all lists have been looked at.
    """

    def __init__(self, steps: Table, seconds: Table, max_graphs: int) -> None:
        assert steps.shape == seconds.shape
        self.best: dict[int, SizePair] = {}
        self.is_exact = True
        self._steps, self._seconds, self._max_graphs = steps, seconds, max_graphs
        self._num_rows, self._num_columns = steps.shape
        self._search()

    def _search(self) -> None:
        lengths = range(1, min(self._max_graphs, self._num_columns) + 1)
        many = [n for n in lengths if not _is_feasible(self._num_columns, n, self._num_rows)]
        for length in lengths:
            if length not in many:
                self._try_columns(range(self._num_columns), length)
        if not many:
            return
        left = []
        for length in range(1, min(self._max_graphs // many[0], self._num_rows) + 1):
            if _is_feasible(self._num_rows, length, self._num_columns):
                self._try_rows(length)
            else:
                left.append(length)
        for length in many:
            if left and left[0] * length <= self._max_graphs:
                self.is_exact = False
                self._try_columns(self._grouped_columns(length), length)

    def _try_columns(self, columns: Sequence[int], length: int) -> None:
        max_count = min(self._max_graphs // length, self._num_rows)
        for pair in _solve(self._steps, self._seconds, _lists(columns, length), max_count):
            self._keep(pair)

    def _try_rows(self, length: int) -> None:
        max_count = min(self._max_graphs // length, self._num_columns)
        lists = _lists(range(self._num_rows), length)
        for pair in _solve(self._steps.T, self._seconds.T, lists, max_count):
            self._keep(SizePair(rows=pair.columns, columns=pair.rows, seconds=pair.seconds))

    def _keep(self, pair: SizePair) -> None:
        known = self.best.get(pair.num_graphs)
        if known is None or pair.seconds < known.seconds:
            self.best[pair.num_graphs] = pair

    def _grouped_columns(self, length: int) -> Sequence[int]:
        """Return the last column of each group, with groups as small as time allows."""
        last, size = self._num_columns - 1, 2
        while not _is_feasible(len(range(last, -1, -size)), length, self._num_rows):
            size *= 2
        return range(last, -1, -size)[::-1]


def _is_feasible(num_sizes: int, length: int, num_solved: int) -> bool:
    num_lists = comb(num_sizes - 1, length - 1)
    return num_lists * (num_solved**2 + _CELLS_PER_LIST) <= _MAX_CELLS


def _lists(indices: Sequence[int], length: int) -> Iterator[tuple[int, ...]]:
    """Yield every list of the length that ends in the last index."""
    return ((*chosen, indices[-1]) for chosen in combinations(indices[:-1], length - 1))


def _solve(
    steps: Table, seconds: Table, lists: Iterable[tuple[int, ...]], max_count: int
) -> Iterator[SizePair]:
    """Yield, for 1 row to `max_count`, the best of the pairs with each list of columns."""
    up_to = steps.cumsum(axis=0).cumsum(axis=1)
    lists = iter(lists)
    best: dict[int, SizePair] = {}
    batch_size = max(_BATCH_CELLS // len(steps) ** 2, 1)
    while batch := list(islice(lists, batch_size)):
        totals, before = _least_times(up_to, seconds, np.array(batch), max_count)
        for count, total in enumerate(totals, start=1):
            index = int(total.argmin())
            if count not in best or total[index] < best[count].seconds:
                rows = _trace_back(before[: count - 1], index, len(steps) - 1)
                best[count] = SizePair(rows, batch[index], float(total[index]))
    yield from best.values()


def _least_times(
    up_to: Table, seconds: Table, columns: NDArray[np.int64], max_count: int
) -> tuple[list[Table], list[NDArray[np.int64]]]:
    """Solve for the rows, for several lists of columns of equal length at once.

    Args:
        up_to: how many steps need no more than each pair of sizes, `[num_rows, num_columns]`.
        seconds: of a step in each pair of sizes.
        columns: the lists, `[num_lists, length]`.
        max_count: most rows.

    Returns:
        For each number of rows, what all steps take, `[num_lists]`; and for each but the first, the
        row before each row, `[num_lists, num_rows]`.
    """
    # [num_lists, num_rows, length]: what each column of the list serves, and at what price.
    held = np.diff(up_to[:, columns], axis=2, prepend=0).transpose(1, 0, 2)
    price = seconds[:, columns].transpose(1, 0, 2)
    least = (held * price).sum(axis=2)
    # [num_lists, b, a]: the time of the steps above row a and up to row b, in b.
    between = least[:, :, None] - price @ held.transpose(0, 2, 1)
    between[:, ~np.tri(len(up_to), k=-1, dtype=bool)] = np.inf
    totals, before = [least[:, -1]], []
    for _ in range(1, max_count):
        through = least[:, None, :] + between
        before.append(through.argmin(axis=2))
        least = through.min(axis=2)
        totals.append(least[:, -1])
    return totals, before


def _trace_back(before: Sequence[NDArray[np.int64]], index: int, last: int) -> tuple[int, ...]:
    """Return the rows that the choices of a list lead back to from the last one."""
    rows = [last]
    for chosen in reversed(before):
        rows.append(int(chosen[index, rows[-1]]))
    return tuple(reversed(rows))
