"""Which decode graphs take least time for what a simulation decoded, beside the default ones.

A step of n rows, the longest of c tokens, takes the time of the smallest graph that holds both. The
graphs are all pairs of a list of rows and a list of contexts. Only sizes that occur are looked at,
since each size can shrink to the largest that it serves.

The occupancy is that of one simulation. Other graphs take other times, which changes it a little: a
simulation with the new ones says by how much. Knows no torch.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuron_llm.report.advice.decode_choice import DecodeBucketChoice, score_decode_buckets
from neuron_llm.report.advice.decode_search import SizeSearch
from neuron_llm.report.simulate.decode_occupancy import DecodeOccupancy
from neuron_llm.report.step_time.step_times import StepTimes
from neuron_llm.scheduler.buckets import DecodeBucket, get_default_num_seqs_buckets

MAX_LONGER = 0.01
"""A graph is not worth it if without it the decode steps take at most this share longer."""

_ROUNDING = 1e-9
"""A share of the time that may be no more than rounding."""


@dataclass(frozen=True)
class DecodeBucketLimits:
    """What decode graphs have to keep to.

    Attributes:
        max_num_seqs: the last of the rows.
        max_model_len: the last of the contexts, whose graphs are compiled anyway.
        max_graphs: most graphs, rows times contexts.
    """

    max_num_seqs: int
    max_model_len: int
    max_graphs: int

    def __post_init__(self) -> None:
        """Check the ranges."""
        assert min(self.max_num_seqs, self.max_model_len, self.max_graphs) >= 1


@dataclass(frozen=True)
class DecodeRecommendation:
    """The best decode graphs of each number.

    Attributes:
        points: ascending by number of graphs, each taking less time than the one before.
        default: the default rows, with no context buckets.
        max_graphs: most graphs that were asked for; `points` go on to as many as the default has.
        is_exact: whether nothing was left out; see `SizeSearch`.
    """

    points: tuple[DecodeBucketChoice, ...]
    default: DecodeBucketChoice
    max_graphs: int
    is_exact: bool

    def at_most(self, num_graphs: int) -> DecodeBucketChoice:
        """Return the best choice of at most so many graphs, at least 1."""
        assert num_graphs >= 1
        return [point for point in self.points if point.num_graphs <= num_graphs][-1]

    @property
    def best(self) -> DecodeBucketChoice:
        """The best choice of at most `max_graphs`."""
        return self.at_most(self.max_graphs)

    @property
    def at_equal_count(self) -> DecodeBucketChoice:
        """The best choice of at most as many graphs as the default has."""
        return self.at_most(self.default.num_graphs)

    @property
    def knee(self) -> DecodeBucketChoice:
        """The choice of the fewest graphs that takes at most `MAX_LONGER` longer than the best."""
        limit = self.best.seconds * (1 + MAX_LONGER)
        return next(point for point in self.points if point.seconds <= limit)

    def to_json(self) -> dict[str, Any]:
        """Return all choices as JSON keys and values."""
        return {
            "max_graphs": self.max_graphs,
            "is_exact": self.is_exact,
            "best": self.best.to_json(),
            "knee": self.knee.to_json(),
            "max_longer": MAX_LONGER,
            "default": self.default.to_json(),
            "at_equal_count": self.at_equal_count.to_json(),
            "points": [point.to_json() for point in self.points],
        }


def recommend_decode_buckets(
    occupancy: DecodeOccupancy, limits: DecodeBucketLimits, step_times: StepTimes
) -> DecodeRecommendation:
    """Return the decode graphs that take least time for an occupancy.

    Args:
        occupancy: of a simulation with these limits.
        limits: what the graphs have to keep to.
        step_times: of every graph; larger ones are taken to be no faster.

    Raises:
        NeuronLLMError: nobody can say what a step takes.
    """
    grid = _Grid(occupancy, limits, step_times)
    default_rows = get_default_num_seqs_buckets(limits.max_num_seqs)
    max_graphs = max(limits.max_graphs, len(default_rows))
    search = SizeSearch(grid.steps, grid.seconds, max_graphs)
    points: list[DecodeBucketChoice] = []
    for _, pair in sorted(search.best.items()):
        point = grid.score(
            [grid.num_seqs[row] for row in pair.rows],
            [grid.contexts[column] for column in pair.columns[:-1]],
        )
        if not points or point.seconds < points[-1].seconds * (1 - _ROUNDING):
            points.append(point)
    default = grid.score(default_rows, [])
    return DecodeRecommendation(tuple(points), default, limits.max_graphs, search.is_exact)


class _Grid:
    """The sizes worth looking at, with what needs them and what they take.

    Attributes:
        num_seqs: rows, ascending.
        contexts: tokens, ascending.
        steps: how many need each pair, `[len(num_seqs), len(contexts)]`.
        seconds: of a step in each pair, of the same shape.
    """

    def __init__(
        self, occupancy: DecodeOccupancy, limits: DecodeBucketLimits, step_times: StepTimes
    ) -> None:
        self._occupancy, self._step_times = occupancy, step_times
        self._max_model_len = longest = limits.max_model_len
        self.num_seqs = sorted({limits.max_num_seqs, *occupancy.by_num_seqs})
        self.contexts = sorted({longest, *(c for c in occupancy.by_context if c < longest)})
        assert self.num_seqs[-1] == limits.max_num_seqs, "the occupancy is of other limits"
        self.steps, self.seconds = np.zeros((2, len(self.num_seqs), len(self.contexts)))
        for shape, num_steps in occupancy.counts.items():
            row = bisect_left(self.num_seqs, shape.num_seqs)
            column = bisect_left(self.contexts, min(shape.context_tokens, longest))
            self.steps[row, column] += num_steps
        for row, batch_size in enumerate(self.num_seqs):
            for column, context in enumerate(self.contexts):
                time = step_times.step_time(DecodeBucket(batch_size, context))
                self.seconds[row, column] = time.seconds

    def score(self, num_seqs_buckets: list[int], contexts: list[int]) -> DecodeBucketChoice:
        """Return what these graphs make of the occupancy."""
        return score_decode_buckets(
            self._occupancy,
            num_seqs_buckets,
            contexts,
            max_model_len=self._max_model_len,
            step_times=self._step_times,
        )
