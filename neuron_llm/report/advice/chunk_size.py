"""Which `max_num_batched_tokens` costs least: how large a chunk of a prompt to compute in one step.

A small chunk leaves little padding and takes many steps. Without a price of the step the smallest
would always win; without one of the token the largest would. What a long step does to the requests
that wait for their next token is not part of the price. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuron_llm.report.advice.bucket_optimizer import BucketLimits, optimal_buckets
from neuron_llm.report.advice.prefill_score import PrefillScore, score_prefill
from neuron_llm.report.step_time.step_price import DEFAULT_STEP_PRICE, StepPrice
from neuron_llm.report.workload.length_histogram import LengthHistogram
from neuron_llm.scheduler.block_pool import ceil_div
from neuron_llm.scheduler.buckets import MIN_DEFAULT_TOKENS_BUCKET


@dataclass(frozen=True)
class ChunkSizeOption:
    """A chunk size with the buckets that fit it best.

    Attributes:
        max_chunk_tokens: the chunk size, which is the last bucket too.
        score: of those buckets on the workload.
        cost: of all steps, in the unit of the price.
        num_chunked_prompts: prompts that need several chunks.
    """

    max_chunk_tokens: int
    score: PrefillScore
    cost: float
    num_chunked_prompts: int

    def to_json(self) -> dict[str, Any]:
        """Return the option as JSON keys and values."""
        return {
            "max_num_batched_tokens": self.max_chunk_tokens,
            "cost": self.cost,
            "num_chunked_prompts": self.num_chunked_prompts,
            **self.score.to_json(),
        }


@dataclass(frozen=True)
class ChunkSizes:
    """The chunk sizes that were tried.

    Attributes:
        options: ascending by size, at least one.
        price: that they were compared by.
    """

    options: tuple[ChunkSizeOption, ...]
    price: StepPrice

    @property
    def best(self) -> ChunkSizeOption:
        """The cheapest option; of several, the smallest, whose steps keep others waiting least."""
        return min(self.options, key=lambda option: option.cost)

    def to_json(self) -> dict[str, Any]:
        """Return options, price and choice as JSON keys and values."""
        return {
            "price": self.price.to_json(),
            "options": [option.to_json() for option in self.options],
            "best_max_num_batched_tokens": self.best.max_chunk_tokens,
        }


def candidate_chunk_sizes(
    lengths: LengthHistogram, *, current: int, max_model_len: int, granularity: int = 1
) -> list[int]:
    """Return chunk sizes worth trying, ascending.

    These are the current one, the powers of two from 128 below the longest prompt, and the longest
    prompt itself, rounded up to the granularity: with that no prompt needs a second chunk.

    Args:
        lengths: tokens of each prompt that have to be computed.
        current: what is configured.
        max_model_len: the most tokens of a chunk.
        granularity: of the last candidate.
    """
    sizes = {current, ceil_div(max(lengths.longest, 1), granularity) * granularity}
    size = MIN_DEFAULT_TOKENS_BUCKET
    while size < lengths.longest:
        sizes.add(size)
        size *= 2
    return sorted({min(size, max_model_len) for size in sizes})


def compare_chunk_sizes(
    lengths: LengthHistogram,
    candidates: Sequence[int],
    *,
    max_graphs: int,
    granularity: int = 1,
    price: StepPrice = DEFAULT_STEP_PRICE,
) -> ChunkSizes:
    """Return what the prompts cost under each chunk size, each with its optimal buckets.

    Args:
        lengths: tokens of each prompt that have to be computed.
        candidates: chunk sizes, ascending, at least one.
        max_graphs: most buckets of each.
        granularity: every bucket but the last is a multiple of it.
        price: of a step and of a token.
    """
    options = []
    for max_chunk_tokens in candidates:
        limits = BucketLimits(max_chunk_tokens, max_graphs, granularity)
        score = score_prefill(lengths, optimal_buckets(lengths, limits))
        computed = score.total.num_real_tokens + score.num_padded_tokens
        options.append(
            ChunkSizeOption(
                max_chunk_tokens,
                score,
                cost=price.of(score.total.num_uses, computed),
                num_chunked_prompts=lengths.num_above(max_chunk_tokens),
            )
        )
    return ChunkSizes(tuple(options), price)
