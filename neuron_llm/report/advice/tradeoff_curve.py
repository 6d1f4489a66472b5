"""The least padding for each number of graphs, and where one more is no longer worth it.

Knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from neuron_llm.report.advice.bucket_optimizer import BucketLimits, optimal_bucket_lists
from neuron_llm.report.advice.prefill_score import PrefillScore, score_prefill
from neuron_llm.report.workload.length_histogram import LengthHistogram

MIN_SAVING = 0.01
"""What a graph has to save to be worth it: tokens of padding per real token."""


@dataclass(frozen=True)
class TradeoffCurve:
    """The best list of each length.

    Each graph saves at most as much padding as the one before it: the curve is convex.

    Attributes:
        points: the best list of 1 graph, of 2, and so on, each with less padding than the one
            before; the curve ends where more graphs were not asked for, or would save nothing.
    """

    points: tuple[PrefillScore, ...]

    @property
    def knee(self) -> PrefillScore:
        """The last point whose last graph is worth it.

        A graph is worth it if it saves at least `MIN_SAVING` tokens of padding per real token, 1 in
        100. Since the curve is convex, each graph before the knee is worth it and none behind.
        A knee at the end of the curve says that the next graph may be worth it too.
        """
        knee = self.points[0]
        for fewer, point in pairwise(self.points):
            saved = fewer.num_padded_tokens - point.num_padded_tokens
            if saved < MIN_SAVING * point.total.num_real_tokens:
                break
            knee = point
        return knee

    def at_most(self, num_graphs: int) -> PrefillScore:
        """Return the best list of at most so many graphs, at least 1."""
        assert num_graphs >= 1
        return self.points[min(num_graphs, len(self.points)) - 1]

    def to_json(self) -> dict[str, Any]:
        """Return the points and the knee's number of graphs as JSON keys and values."""
        return {
            "points": [point.to_json() for point in self.points],
            "knee_num_graphs": self.knee.num_graphs,
            "min_saving": MIN_SAVING,
        }


def tradeoff_curve(
    lengths: LengthHistogram,
    limits: BucketLimits,
    cached_tokens: Mapping[int, int] | None = None,
) -> TradeoffCurve:
    """Return the best lists of up to `limits.max_graphs` graphs, and what each costs.

    Args:
        lengths: tokens of each prompt that have to be computed.
        limits: what the lists have to keep to.
        cached_tokens: see `score_prefill`.
    """
    lists = optimal_bucket_lists(lengths, limits)
    return TradeoffCurve(tuple(score_prefill(lengths, each, cached_tokens) for each in lists))
