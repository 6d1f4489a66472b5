"""A whole bucket report: everything that the command shows, in one value. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuron_llm.report.advice.prefill_advice import PrefillAdvice
from neuron_llm.report.bucket_usage import BucketUsage
from neuron_llm.report.report_workload import ReportWorkload
from neuron_llm.report.run.last_run import LastRun
from neuron_llm.report.run.padding import PaddingCounts
from neuron_llm.report.static_report import StaticReport
from neuron_llm.report.subject import ReportSubject

if TYPE_CHECKING:  # It needs numpy, which takes its time to import.
    from neuron_llm.report.what_if import WhatIf

_NO_COUNTS: Mapping[str, None] = dict.fromkeys(PaddingCounts().to_json())


@dataclass(frozen=True, kw_only=True)
class BucketReport:
    """What was found out.

    Attributes:
        subject: whose graphs they are.
        static: what can be said without a workload.
        last_run: of the subject; None if there was none.
        workload: None if there is none.
        usage: of each graph by the workload; None if there is none.
        prefill: None without a request that can run.
        what_if: None unless it was asked for.
        timing: where the step times of the simulations come from; None without.
    """

    subject: ReportSubject
    static: StaticReport
    last_run: LastRun | None = None
    workload: ReportWorkload | None = None
    usage: BucketUsage | None = None
    prefill: PrefillAdvice | None = None
    what_if: WhatIf | None = None
    timing: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return one document, units in the keys, null where there is nothing to say."""
        buckets = self.subject.plan.buckets.num_batched_tokens_buckets
        return {
            "schema_version": 1,
            "artifact": None if self.subject.artifact_id is None else str(self.subject.path),
            "artifact_id": self.subject.artifact_id,
            "config": str(self.subject.path) if self.subject.artifact_id is None else None,
            "backend": self.subject.plan.backend,
            "last_run": self.last_run and self.last_run.to_json(),
            "usage_source": self.usage and self.usage.source.value,
            "graphs": self.graphs_json(),
            "total": self.usage.total.to_json() if self.usage else None,
            "static": self.static.to_json(),
            "workload": self.workload and self.workload.to_json(buckets),
            "prefill": self.prefill and self.prefill.to_json(),
            "step_times": self.timing,
            "what_if": self.what_if and self.what_if.to_json(),
        }

    def graphs_json(self) -> list[dict[str, Any]]:
        """Return each graph with its range and its uses, these null where they are not known."""
        used = self.usage.by_bucket if self.usage else {}
        return [
            {
                **graph.to_json(),
                **(used[graph.bucket].to_json() if graph.bucket in used else _NO_COUNTS),
            }
            for graph in self.static.graphs
        ]
