"""A configuration whose performance is in question: limits and graphs. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from neuron_llm.scheduler.buckets import BucketSet, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.config import SchedulerConfig, SchedulerLimits


class Limits(SchedulerLimits, Protocol):
    """What a compile plan and the settings of an artifact have in common."""

    @property
    def async_scheduling(self) -> bool:
        """Whether a step is scheduled while the one before it runs."""


@dataclass(frozen=True)
class Candidate:
    """One configuration.

    Attributes:
        name: what tells it from others.
        scheduler: the scheduler's limits.
        buckets: the graphs; the prefill buckets are the scheduler's.
        async_scheduling: whether a step is scheduled while the one before it runs.
    """

    name: str
    scheduler: SchedulerConfig
    buckets: BucketSet
    async_scheduling: bool = False

    def __post_init__(self) -> None:
        """Check that scheduler and graphs agree."""
        sizes = tuple(self.buckets.num_batched_tokens_buckets)
        assert sizes == self.scheduler.num_batched_tokens_buckets, "prefill buckets differ"

    @classmethod
    def of(cls, name: str, limits: Limits, buckets: BucketSet) -> Candidate:
        """Return the candidate of a compile plan, or of the settings of a manifest.

        Raises:
            ConfigError: the limits contradict each other or the buckets.
        """
        scheduler = SchedulerConfig.of(limits, buckets.num_batched_tokens_buckets)
        return cls(name, scheduler, buckets, limits.async_scheduling)

    def with_buckets(
        self,
        name: str,
        *,
        num_batched_tokens_buckets: Sequence[int] | None = None,
        num_seqs_buckets: Sequence[int] | None = None,
        decode_context_length_buckets: Sequence[int] | None = None,
    ) -> Candidate:
        """Return the same configuration with other graphs.

        The last prefill bucket is `max_num_batched_tokens` then, and the last of
        `num_seqs_buckets`, `max_num_seqs`; the KV cache stays as it is.

        Args:
            name: of the new candidate.
            num_batched_tokens_buckets: ascending; None for the same.
            num_seqs_buckets: ascending; None for the same.
            decode_context_length_buckets: ascending, below `max_model_len`; None for the same.

        Raises:
            ConfigError: the last prefill bucket is above `max_model_len`.
        """
        old, scheduler = self.buckets, self.scheduler
        prefill, decode = old.prefill, old.decode
        if num_batched_tokens_buckets is not None:
            prefill = tuple(PrefillBucket(size) for size in num_batched_tokens_buckets)
            scheduler = replace(
                scheduler,
                max_num_batched_tokens=num_batched_tokens_buckets[-1],
                num_batched_tokens_buckets=tuple(num_batched_tokens_buckets),
            )
        if num_seqs_buckets is not None:
            scheduler = replace(scheduler, max_num_seqs=num_seqs_buckets[-1])
        seqs = num_seqs_buckets or old.num_seqs_buckets
        contexts = sorted({bucket.max_context_tokens for bucket in decode})
        if decode_context_length_buckets is not None:
            contexts = [*decode_context_length_buckets, scheduler.max_model_len]
        decode = tuple(DecodeBucket(rows, context) for rows in seqs for context in contexts)
        return replace(
            self, name=name, scheduler=scheduler, buckets=BucketSet(prefill=prefill, decode=decode)
        )
