"""What can be said of graphs before anything runs. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from neuron_llm.compile.plan.memory import MemoryPlan
from neuron_llm.report.run.bucket_range import BucketRange, bucket_ranges
from neuron_llm.report.subject import ReportSubject
from neuron_llm.scheduler.buckets import Bucket
from neuron_llm.scheduler.policy.coverage import UnreachableBucket, check_coverage


@dataclass(frozen=True)
class GraphFacts:
    """One graph.

    Attributes:
        range: which counts it serves.
        activation_bytes: estimated peak of the values between its layers.
        compile_seconds: what building it took, or graphs like it; None if nothing is on record.
        is_compile_recorded: whether it is this graph's own time.
    """

    range: BucketRange
    activation_bytes: int
    compile_seconds: float | None
    is_compile_recorded: bool

    @property
    def bucket(self) -> Bucket:
        """The graph's bucket."""
        return self.range.bucket

    @property
    def expected_padding_ratio(self) -> float:
        """The share of padding if all counts that the graph serves were equally frequent.

        Of 33 to 128 tokens in a bucket of 128, 0.371: half of the worst case.
        """
        return self.range.worst_padding_ratio / 2

    def to_json(self) -> dict[str, Any]:
        """Return the graph as JSON keys and values."""
        return {
            "graph": self.bucket.name,
            **self.range.to_json(),
            "expected_padding_ratio": self.expected_padding_ratio,
            "activation_bytes": self.activation_bytes,
            "compile_s": self.compile_seconds,
            "is_compile_recorded": self.is_compile_recorded,
        }


@dataclass(frozen=True)
class StaticReport:
    """All graphs of a configuration or an artifact.

    Attributes:
        graphs: in the order of the bucket set.
        unreachable: buckets that were asked for and that no step can need.
        uncovered: a sentence for every shape that the scheduler can emit and no graph holds; none
            proves that every step has a graph.
        memory: what running takes.
    """

    graphs: tuple[GraphFacts, ...]
    unreachable: tuple[UnreachableBucket, ...]
    uncovered: tuple[str, ...]
    memory: MemoryPlan

    @property
    def compile_seconds(self) -> float | None:
        """What building all graphs takes, one after another; None if a time is not known."""
        times = [graph.compile_seconds for graph in self.graphs]
        return None if None in times else sum(time for time in times if time is not None)

    @property
    def num_recorded(self) -> int:
        """Graphs whose own time is on record."""
        return sum(graph.is_compile_recorded for graph in self.graphs)

    def to_json(self) -> dict[str, Any]:
        """Return all but the graphs as JSON keys and values."""
        return {
            "num_graphs": len(self.graphs),
            "unreachable": [
                {"graph": dropped.bucket.name, "reason": dropped.reason}
                for dropped in self.unreachable
            ],
            "uncovered": list(self.uncovered),
            "compile_s": self.compile_seconds,
            "num_compile_times_recorded": self.num_recorded,
            "weights_bytes": self.memory.weights_bytes,
            "kv_cache_bytes": self.memory.kv_cache_bytes,
            "activation_bytes": self.memory.activation_bytes,
            "total_bytes": self.memory.total_bytes,
        }


def static_report(subject: ReportSubject) -> StaticReport:
    """Return what can be said of a subject's graphs, and whether they cover every step."""
    plan = subject.plan
    ranges = bucket_ranges(plan.buckets)
    typical = _typical_seconds(subject.compile_seconds)
    graphs = tuple(
        GraphFacts(
            range=ranges[bucket],
            activation_bytes=graph.activation_bytes,
            compile_seconds=subject.compile_seconds.get(bucket, typical.get(type(bucket))),
            is_compile_recorded=bucket in subject.compile_seconds,
        )
        for bucket, graph in zip(plan.buckets.all, plan.memory.graphs, strict=True)
    )
    uncovered = check_coverage(plan.buckets, plan.shapes)
    return StaticReport(graphs, plan.unreachable, uncovered, plan.memory)


def _typical_seconds(recorded: Mapping[Bucket, float]) -> dict[type, float]:
    """Return the median of each phase: a graph's size changes little of what building it takes."""
    phases: dict[type, list[float]] = {}
    for bucket, seconds in recorded.items():
        phases.setdefault(type(bucket), []).append(seconds)
    return {phase: median(times) for phase, times in phases.items()}
