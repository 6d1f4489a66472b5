"""Which prefill buckets a workload wants, beside those that are configured. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuron_llm.report.advice.bucket_comparison import (
    BucketComparison,
    Verdict,
    compare_at_equal_count,
)
from neuron_llm.report.advice.bucket_optimizer import BucketLimits
from neuron_llm.report.advice.chunk_size import (
    ChunkSizes,
    candidate_chunk_sizes,
    compare_chunk_sizes,
)
from neuron_llm.report.advice.held_out import HeldOutScores, score_held_out
from neuron_llm.report.advice.prefill_score import PrefillScore, score_prefill
from neuron_llm.report.advice.tradeoff_curve import TradeoffCurve, tradeoff_curve
from neuron_llm.report.report_workload import ReportWorkload
from neuron_llm.report.step_time.step_price import DEFAULT_STEP_PRICE, StepPrice
from neuron_llm.scheduler.buckets import get_default_num_batched_tokens_buckets

CURVE_GRAPHS = 16
"""How far the curve goes, unless one of the lists that are compared is longer."""


@dataclass(frozen=True)
class PrefillQuestion:
    """What is asked about prefill buckets.

    Attributes:
        current: the configured list, ascending.
        max_model_len: prompt and output together, in tokens.
        max_chunk_tokens: the largest chunk that buckets are wanted for.
        max_graphs: most buckets; None for as many as `current` has.
        granularity: every bucket but the last is a multiple of it.
        price: of a step and of a token, for the chunk size.
    """

    current: Sequence[int]
    max_model_len: int
    max_chunk_tokens: int
    max_graphs: int | None = None
    granularity: int = 1
    price: StepPrice = DEFAULT_STEP_PRICE

    @property
    def limits(self) -> BucketLimits:
        """What the recommended list keeps to."""
        num_graphs = self.max_graphs or len(self.current)
        return BucketLimits(self.max_chunk_tokens, num_graphs, self.granularity)


@dataclass(frozen=True, kw_only=True)
class PrefillAdvice:
    """The answer.

    Attributes:
        limits: what the recommended list keeps to.
        current: the configured list on the workload.
        default: the default list of the same largest chunk.
        curve: the best list of each number of graphs.
        equal_to_current: the configured list against the best of as many graphs.
        equal_to_default: the default list against the best of as many graphs.
        held_out: whether what fits the first half of the workload fits the rest; None where there
            is no rest.
        chunk_sizes: what other chunk sizes would cost.
    """

    limits: BucketLimits
    current: PrefillScore
    default: PrefillScore
    curve: TradeoffCurve
    equal_to_current: BucketComparison
    equal_to_default: BucketComparison
    held_out: HeldOutScores | None
    chunk_sizes: ChunkSizes

    @property
    def recommended(self) -> PrefillScore:
        """The best list of at most `limits.max_graphs`."""
        return self.curve.at_most(self.limits.max_graphs)

    @property
    def against_current(self) -> BucketComparison:
        """The configured list against the recommended one."""
        return BucketComparison(self.current, self.recommended)

    @property
    def against_default(self) -> BucketComparison:
        """The default list against the recommended one."""
        return BucketComparison(self.default, self.recommended)

    @property
    def is_saving(self) -> bool:
        """Whether the recommended list leaves less padding than the configured one."""
        return self.against_current.verdict is Verdict.LESS_PADDING

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON keys and values."""
        return {
            "max_graphs": self.limits.max_graphs,
            "granularity": self.limits.granularity,
            "max_chunk_tokens": self.limits.max_chunk_tokens,
            "current": self.current.to_json(),
            "default": self.default.to_json(),
            "recommended": self.recommended.to_json(),
            "is_saving": self.is_saving,
            "against_current": self.against_current.to_json(),
            "against_default": self.against_default.to_json(),
            "equal_to_current": self.equal_to_current.to_json(),
            "equal_to_default": self.equal_to_default.to_json(),
            "curve": self.curve.to_json(),
            "held_out": self.held_out and self.held_out.to_json(),
            "chunk_sizes": self.chunk_sizes.to_json(),
        }


def advise_prefill(workload: ReportWorkload, question: PrefillQuestion) -> PrefillAdvice:
    """Return the buckets that leave the least padding for a workload.

    They are fitted on what the prefix cache leaves to compute.

    Args:
        workload: with at least one request that can run.
        question: what is asked.
    """
    lengths, cached = workload.lengths, workload.work.cached_tokens
    limits, granularity = question.limits, question.granularity
    default = tuple(get_default_num_batched_tokens_buckets(question.max_chunk_tokens))
    current = tuple(question.current)
    num_graphs = max(CURVE_GRAPHS, limits.max_graphs, len(current), len(default))
    candidates = candidate_chunk_sizes(
        lengths,
        current=question.max_chunk_tokens,
        max_model_len=question.max_model_len,
        granularity=granularity,
    )
    return PrefillAdvice(
        limits=limits,
        current=score_prefill(lengths, current, cached),
        default=score_prefill(lengths, default, cached),
        curve=tradeoff_curve(
            lengths, BucketLimits(limits.max_chunk_tokens, num_graphs, granularity), cached
        ),
        equal_to_current=compare_at_equal_count(lengths, current, granularity, cached),
        equal_to_default=compare_at_equal_count(lengths, default, granularity, cached),
        held_out=score_held_out(workload.work.num_computed_tokens, limits),
        chunk_sizes=compare_chunk_sizes(
            lengths,
            candidates,
            max_graphs=limits.max_graphs,
            granularity=granularity,
            price=question.price,
        ),
    )
