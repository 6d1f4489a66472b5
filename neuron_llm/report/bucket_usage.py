"""What each graph is used for, by a run, a workload or a simulation. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from neuron_llm.report.advice.prefill_score import PrefillScore
from neuron_llm.report.run.padding import PaddingAccount, PaddingCounts
from neuron_llm.scheduler.buckets import Bucket, BucketSet


class UsageSource(StrEnum):
    """How the uses are known."""

    LAST_RUN = "last_run"
    PREFILLS = "prefills"
    SIMULATION = "simulation"


@dataclass(frozen=True)
class BucketUsage:
    """The steps of each graph.

    Attributes:
        source: how they are known.
        by_bucket: the sums of each graph; of prefills alone, decodes are left out.
    """

    source: UsageSource
    by_bucket: Mapping[Bucket, PaddingCounts]

    @property
    def total(self) -> PaddingCounts:
        """The sums over all graphs."""
        return PaddingCounts.sum_of(self.by_bucket.values())

    @property
    def has_decodes(self) -> bool:
        """Whether rows and context of decodes are counted."""
        return self.source is not UsageSource.PREFILLS

    @classmethod
    def of_run(cls, account: PaddingAccount) -> BucketUsage:
        """Return what the steps of a run's log say."""
        return cls(UsageSource.LAST_RUN, account.by_bucket)

    @classmethod
    def of_prefills(cls, score: PrefillScore, buckets: BucketSet) -> BucketUsage:
        """Return what a workload's prompts say, without decodes."""
        by_bucket: dict[Bucket, PaddingCounts] = {
            bucket: score.by_bucket[bucket] for bucket in buckets.prefill
        }
        return cls(UsageSource.PREFILLS, by_bucket)

    @classmethod
    def of_simulation(cls, account: PaddingAccount) -> BucketUsage:
        """Return what a simulation of the configured graphs says."""
        return cls(UsageSource.SIMULATION, account.by_bucket)
