"""A set of decode graphs, and what it makes of an occupancy. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from neuron_llm.report.simulate.decode_occupancy import DecodeOccupancy
from neuron_llm.report.step_time.step_times import StepTimes
from neuron_llm.scheduler.buckets import DecodeBucket, get_bucket_for_count


@dataclass(frozen=True)
class DecodeBucketChoice:
    """Decode graphs, all pairs of a number of rows and a context.

    Attributes:
        num_seqs_buckets: ascending.
        decode_context_length_buckets: ascending, without `max_model_len`, for which there are
            graphs as well.
        num_steps: decode steps of the occupancy.
        seconds: that they take.
        num_row_padded_tokens: padding rows in them, one token each.
    """

    num_seqs_buckets: tuple[int, ...]
    decode_context_length_buckets: tuple[int, ...]
    num_steps: int
    seconds: float
    num_row_padded_tokens: int

    @property
    def num_graphs(self) -> int:
        """How many decode graphs there are."""
        return len(self.num_seqs_buckets) * (len(self.decode_context_length_buckets) + 1)

    @property
    def mean_step_ms(self) -> float | None:
        """What a decode step takes on average; None without any."""
        return self.seconds * 1e3 / self.num_steps if self.num_steps else None

    def to_json(self) -> dict[str, Any]:
        """Return lists and sums as JSON keys and values."""
        return {
            "num_seqs_buckets": list(self.num_seqs_buckets),
            "decode_context_length_buckets": list(self.decode_context_length_buckets),
            "num_graphs": self.num_graphs,
            "num_steps": self.num_steps,
            "decode_s": self.seconds,
            "mean_step_ms": self.mean_step_ms,
            "num_row_padded_tokens": self.num_row_padded_tokens,
        }


def score_decode_buckets(
    occupancy: DecodeOccupancy,
    num_seqs_buckets: Sequence[int],
    decode_context_length_buckets: Sequence[int],
    *,
    max_model_len: int,
    step_times: StepTimes,
) -> DecodeBucketChoice:
    """Count what the decode steps of a simulation take with these graphs.

    Args:
        occupancy: of the simulation.
        num_seqs_buckets: ascending.
        decode_context_length_buckets: ascending multiples of `CONTEXT_BUCKET_MULTIPLE` below
            `max_model_len`; may be empty.
        max_model_len: for which there are graphs as well.
        step_times: of every graph.

    Raises:
        NoBucketError: a step has more rows than the last bucket.
    """
    contexts = [*decode_context_length_buckets, max_model_len]
    times, num_padded = [], 0
    for shape, num_steps in occupancy.counts.items():
        rows = get_bucket_for_count(shape.num_seqs, num_seqs_buckets)
        context = get_bucket_for_count(min(shape.context_tokens, max_model_len), contexts)
        times.append(num_steps * step_times.step_time(DecodeBucket(rows, context)).seconds)
        num_padded += num_steps * (rows - shape.num_seqs)
    return DecodeBucketChoice(
        tuple(num_seqs_buckets),
        tuple(decode_context_length_buckets),
        occupancy.num_steps,
        fsum(times),
        num_padded,
    )
