"""Which pictures a report has. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from neuron_llm.report.advice.prefill_advice import PrefillAdvice
from neuron_llm.report.bucket_report import BucketReport
from neuron_llm.report.bucket_usage import BucketUsage
from neuron_llm.report.html.chart import Words
from neuron_llm.report.html.group_chart import group_chart
from neuron_llm.report.html.length_chart import length_chart
from neuron_llm.report.html.line_charts import curve_chart, time_chart
from neuron_llm.report.html.markup import Markup
from neuron_llm.report.html.series import Edges, Series
from neuron_llm.report.html.share_chart import ShareRow, share_chart
from neuron_llm.report.report_workload import ReportWorkload
from neuron_llm.report.simulate.timeline import TimelineBin

if TYPE_CHECKING:
    from neuron_llm.report.what_if import WhatIf

_PERCENTILES = ("p50", "p90", "p99")
_LATENCIES = {
    "ttft_ms": "Time to first token (TTFT)",
    "tpot_ms": "Time per output token (TPOT)",
    "itl_ms": "Gap between tokens (ITL)",
    "e2el_ms": "Whole request (E2EL)",
}


def pictures(report: BucketReport) -> Iterator[Markup]:
    """Yield a figure for everything that the report has figures of."""
    workload, advice = report.workload, report.prefill
    if workload is not None and advice is not None:
        yield _chunk_lengths(workload, advice)
        yield _prompt_lengths(workload)
    if report.usage is not None:
        yield _waste(report.usage)
    if advice is not None:
        yield _recommended_waste(advice)
        yield _curve(advice)
    if report.what_if is not None:
        yield from _latencies(report.what_if)
        yield from _occupancy(report.what_if)


def _chunk_lengths(workload: ReportWorkload, advice: PrefillAdvice) -> Markup:
    words = Words(
        "Prefill steps by length, and where buckets end",
        "Histogram of the tokens that each prefill step computes, with a vertical line at the end"
        " of each current and each recommended bucket.",
        "tokens of a step, without cached ones",
        "steps",
    )
    edges = [
        Edges("current buckets", "current", advice.current.buckets),
        Edges("recommended buckets", "recommended", advice.recommended.buckets),
    ]
    chunks = workload.lengths.chunked(advice.limits.max_chunk_tokens)
    return length_chart(words, "chunks", chunks, edges)


def _prompt_lengths(workload: ReportWorkload) -> Markup:
    words = Words(
        "Prompts by length",
        "Histogram of the whole lengths of all prompts, cached tokens and prompts that are too long"
        " included.",
        "tokens of a prompt",
        "prompts",
    )
    return length_chart(words, "prompts", workload.all_prompt_lengths)


def _waste(usage: BucketUsage) -> Markup:
    words = Words(
        "Waste of each graph",
        "For each graph, a bar of the real tokens that it computed and of the padding.",
    )
    rows = [
        ShareRow(bucket.name, counts.num_real_tokens, counts.num_padded_tokens)
        for bucket, counts in usage.by_bucket.items()
    ]
    return share_chart(words, "waste", rows)


def _recommended_waste(advice: PrefillAdvice) -> Markup:
    words = Words(
        "Waste of each recommended prefill graph",
        "For each recommended bucket, a bar of the real tokens that it would compute and of the"
        " padding.",
    )
    rows = [
        ShareRow(bucket.name, counts.num_real_tokens, counts.num_padded_tokens)
        for bucket, counts in advice.recommended.by_bucket.items()
    ]
    return share_chart(words, "recommended-waste", rows)


def _curve(advice: PrefillAdvice) -> Markup:
    words = Words(
        "Least waste of each number of prefill graphs",
        "Curve of the least share of padding for each number of graphs, with the current, the"
        " default and the recommended list, and the knee, behind which a graph saves little.",
        "prefill graphs",
        "waste, %",
    )

    def mark(label: str, style: str, score: Any) -> Series:
        return Series(label, style, [(score.num_graphs, score.padding_ratio * 100)])

    curve = [(point.num_graphs, point.padding_ratio * 100) for point in advice.curve.points]
    marks = [
        mark("default", "default", advice.default),
        mark("current", "current", advice.current),
        mark("recommended", "recommended", advice.recommended),
        mark("knee", "knee", advice.curve.knee),
    ]
    return curve_chart(words, "curve", Series("least", "least", curve), marks)


def _latencies(what_if: WhatIf) -> Iterator[Markup]:
    documents = [simulation.to_json() for simulation in what_if.simulations]
    for key, title in _LATENCIES.items():
        series = [_percentiles(each["name"], each[key]) for each in documents]
        if any(each.points for each in series):
            words = Words(
                title, f"{title}: median, 90th and 99th percentile of each simulation.", "", "ms"
            )
            yield group_chart(words, key, _PERCENTILES, series)


def _percentiles(name: str, summary: dict[str, float | None]) -> Series:
    values = [(index, summary[p]) for index, p in enumerate(_PERCENTILES)]
    return Series(name, name, [(index, value) for index, value in values if value is not None])


def _occupancy(what_if: WhatIf) -> Iterator[Markup]:
    yield _over_time(
        what_if, "running", _words("Requests running", "requests"), lambda b: b.mean.num_running
    )
    yield _over_time(
        what_if, "waiting", _words("Requests waiting", "requests"), lambda b: b.mean.num_waiting
    )
    yield _over_time(
        what_if, "blocks", _words("KV blocks in use", "blocks"), lambda b: b.mean.num_used_blocks
    )


def _words(what: str, unit: str) -> Words:
    title = f"{what} over time"
    return Words(title, f"{title}, a line for each simulation.", "seconds", unit)


def _over_time(
    what_if: WhatIf, name: str, words: Words, measure: Callable[[TimelineBin], float]
) -> Markup:
    series = [
        Series(s.candidate.name, s.candidate.name, [(b.started_s, measure(b)) for b in bins])
        for s, bins in ((s, s.timeline.bins()) for s in what_if.simulations)
    ]
    return time_chart(words, name, series)
