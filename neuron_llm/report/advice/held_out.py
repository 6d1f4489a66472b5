"""Whether buckets that fit the first part of a workload also fit the rest. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuron_llm.report.advice.bucket_optimizer import BucketLimits, optimal_buckets
from neuron_llm.report.advice.prefill_score import PrefillScore, score_prefill
from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.scheduler.buckets import get_default_num_batched_tokens_buckets

FITTED_SHARE = 0.5
"""How much of a workload the buckets are fitted on; the rest scores them."""


@dataclass(frozen=True)
class HeldOutScores:
    """Buckets fitted on the first part of a workload, and what they do to both parts.

    Attributes:
        num_fitted: prompts of the first part.
        num_held_out: prompts of the rest.
        fitted: the buckets on the part that they were fitted on.
        held_out: the same buckets on the rest.
        held_out_best: the rest under the buckets that fit it best, which nobody could have known.
        held_out_default: the rest under the default list.
    """

    num_fitted: int
    num_held_out: int
    fitted: PrefillScore
    held_out: PrefillScore
    held_out_best: PrefillScore
    held_out_default: PrefillScore

    def to_json(self) -> dict[str, Any]:
        """Return all of them as JSON keys and values."""
        return {
            "num_fitted": self.num_fitted,
            "num_held_out": self.num_held_out,
            "fitted": self.fitted.to_json(),
            "held_out": self.held_out.to_json(),
            "held_out_best": self.held_out_best.to_json(),
            "held_out_default": self.held_out_default.to_json(),
        }


def score_held_out(
    lengths: Sequence[int], limits: BucketLimits, fitted_share: float = FITTED_SHARE
) -> HeldOutScores | None:
    """Fit buckets on the first part of a workload and score them on the rest.

    Args:
        lengths: tokens of each prompt that have to be computed, in order of arrival.
        limits: what the lists have to keep to.
        fitted_share: how much of them is the first part, between 0 and 1.

    Returns:
        The scores; None with fewer than two prompts, which leave one of the parts empty.
    """
    assert 0 < fitted_share < 1
    if len(lengths) < 2:
        return None
    num_fitted = min(max(round(fitted_share * len(lengths)), 1), len(lengths) - 1)
    first, rest = LengthHistogram.of(lengths[:num_fitted]), LengthHistogram.of(lengths[num_fitted:])
    buckets = optimal_buckets(first, limits)
    default = get_default_num_batched_tokens_buckets(limits.max_chunk_tokens)
    return HeldOutScores(
        num_fitted=num_fitted,
        num_held_out=len(lengths) - num_fitted,
        fitted=score_prefill(first, buckets),
        held_out=score_prefill(rest, buckets),
        held_out_best=score_prefill(rest, optimal_buckets(rest, limits)),
        held_out_default=score_prefill(rest, default),
    )
