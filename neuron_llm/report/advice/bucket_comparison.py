"""Two bucket lists on the same workload, and whether the one saves anything. Knows no torch.

With fewer graphs even the best list can leave more padding than a longer one that nobody tuned.
Then there is nothing saved but graphs, and nothing here says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from neuron_llm.report.advice.bucket_optimizer import BucketLimits, optimal_buckets
from neuron_llm.report.advice.prefill_score import PrefillScore, score_prefill
from neuron_llm.report.workload.length_histogram import LengthHistogram


class Verdict(StrEnum):
    """What a list does to the padding of another."""

    LESS_PADDING = "less_padding"
    SAME_PADDING = "same_padding"
    MORE_PADDING = "more_padding"


@dataclass(frozen=True)
class BucketComparison:
    """A list that may replace another one.

    Attributes:
        reference: what is, or would be, used without it.
        candidate: the list in question, on the same workload.
    """

    reference: PrefillScore
    candidate: PrefillScore

    @property
    def verdict(self) -> Verdict:
        """Whether the candidate leaves less padding, as much, or more."""
        before, after = self.reference.num_padded_tokens, self.candidate.num_padded_tokens
        if after == before:
            return Verdict.SAME_PADDING
        return Verdict.LESS_PADDING if after < before else Verdict.MORE_PADDING

    @property
    def num_graphs_more(self) -> int:
        """How many graphs more the candidate has; negative if it has fewer."""
        return self.candidate.num_graphs - self.reference.num_graphs

    @property
    def num_padded_tokens_more(self) -> int:
        """How many tokens of padding more the candidate leaves; negative if it leaves fewer."""
        return self.candidate.num_padded_tokens - self.reference.num_padded_tokens

    @property
    def saved_share(self) -> float | None:
        """The share of all computed tokens that is saved; None unless there is less padding."""
        if self.verdict is not Verdict.LESS_PADDING:
            return None
        total = self.reference.total
        return -self.num_padded_tokens_more / (total.num_padded_tokens + total.num_real_tokens)

    @property
    def description(self) -> str:
        """The comparison in words, `12.3% padding with 8 graphs instead of 30.4% with 8`.

        Lists of other chunk sizes also make other numbers of steps, each of which takes time.
        """
        candidate, reference = self.candidate, self.reference
        noun = "graph" if candidate.num_graphs == 1 else "graphs"
        text = (
            f"{candidate.padding_ratio:.1%} padding with {candidate.num_graphs} {noun} instead of"
            f" {reference.padding_ratio:.1%} with {reference.num_graphs}"
        )
        steps, steps_before = candidate.total.num_uses, reference.total.num_uses
        if steps != steps_before:
            text += f", in {steps} steps instead of {steps_before}"
        return f"{text}: more padding" if self.verdict is Verdict.MORE_PADDING else text

    def to_json(self) -> dict[str, Any]:
        """Return both lists and the difference as JSON keys and values."""
        return {
            "verdict": self.verdict.value,
            "num_graphs_more": self.num_graphs_more,
            "num_padded_tokens_more": self.num_padded_tokens_more,
            "saved_share": self.saved_share,
            "reference": self.reference.to_json(),
            "candidate": self.candidate.to_json(),
        }


def compare_at_equal_count(
    lengths: LengthHistogram,
    reference: tuple[int, ...],
    granularity: int,
    cached_tokens: Mapping[int, int] | None = None,
) -> BucketComparison:
    """Compare a list with the best one of as many graphs, both ending in the same bucket.

    The best may still be worse, where the reference does not keep to the granularity.

    Args:
        lengths: tokens of each prompt that have to be computed.
        reference: ascending sizes in tokens.
        granularity: of the best list.
        cached_tokens: see `score_prefill`.
    """
    limits = BucketLimits(reference[-1], len(reference), granularity)
    best = optimal_buckets(lengths, limits)
    return BucketComparison(
        score_prefill(lengths, reference, cached_tokens),
        score_prefill(lengths, best, cached_tokens),
    )
