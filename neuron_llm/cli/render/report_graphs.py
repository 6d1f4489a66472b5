"""The graphs of a report: what they serve, what they cost, and whether they suffice."""

from __future__ import annotations

from neuron_llm.cli.render.padding_table import render_padding
from neuron_llm.cli.render.report_lines import labelled, number, percent, section
from neuron_llm.cli.render.table import counted, render_table
from neuron_llm.quantities import shown_bytes
from neuron_llm.report.bucket_report import BucketReport
from neuron_llm.report.bucket_usage import BucketUsage, UsageSource
from neuron_llm.report.report_workload import ReportWorkload
from neuron_llm.report.static_report import StaticReport
from neuron_llm.runtime.batch.distribution import PERCENTS, Distribution

_USES = {
    UsageSource.LAST_RUN: "the last run here",
    UsageSource.PREFILLS: "the workload, by its prompts; decodes with --simulate",
    UsageSource.SIMULATION: "the workload, simulated",
}


def render_graphs(static: StaticReport) -> str:
    """Return what every graph serves, and what all of them take."""
    header = ("graph", "serves", "worst", "expected")
    rows = [
        [
            graph.bucket.name,
            graph.range.description,
            percent(graph.range.worst_padding_ratio),
            percent(graph.expected_padding_ratio),
        ]
        for graph in static.graphs
    ]
    missing = static.uncovered
    coverage = (
        "; ".join(missing) if missing else "complete: every step the scheduler can make has a graph"
    )
    memory = static.memory
    return section(
        "graphs",
        render_table(header, rows, num_text_columns=2),
        "",
        labelled("coverage", coverage),
        *(
            labelled("unreachable", f"{dropped.bucket.name}: {dropped.reason}")
            for dropped in static.unreachable
        ),
        labelled("compile time", _compile_time(static)),
        labelled(
            "memory",
            f"{shown_bytes(memory.total_bytes)}: weights {shown_bytes(memory.weights_bytes)}, KV"
            f" cache {shown_bytes(memory.kv_cache_bytes)}, activations"
            f" {shown_bytes(memory.activation_bytes)}",
        ),
    )


def _compile_time(static: StaticReport) -> str:
    seconds, graphs = static.compile_seconds, counted(len(static.graphs), "graph")
    if seconds is None:
        return f"{graphs}, unknown: nothing like all of them has been compiled here"
    if static.num_recorded == len(static.graphs):
        return f"{graphs}, {seconds:.0f} s of building on record"
    return (
        f"{graphs}, about {seconds:.0f} s of building ({static.num_recorded} on record, the others"
        " taken to be like them)"
    )


def render_usage(report: BucketReport) -> str:
    """Return the uses of every graph, and each kind of padding by itself."""
    usage, workload = report.usage, report.workload
    assert usage is not None and workload is not None
    lines = _kinds(usage, workload)
    if usage.source is UsageSource.LAST_RUN:
        assert report.last_run is not None
        lines += _queue_lines(report.last_run.queue_ms)
    return section(
        f"uses: {_USES[usage.source]}", render_padding(usage.by_bucket, usage.total), "", *lines
    )


def _queue_lines(queue_ms: Distribution) -> list[str]:
    if not queue_ms.num_values:
        return []  # A log of a version that did not note it.
    percentiles = zip(PERCENTS, queue_ms.percentiles(PERCENTS), strict=True)
    shares = ", ".join(f"p{share} {number(value)}" for share, value in percentiles)
    prompts = counted(queue_ms.num_values, "prompt")
    text = f"{prompts} waited for the first step, ms: {shares}, longest {number(queue_ms.maximum)}"
    return [labelled("queue", text)]


def _kinds(usage: BucketUsage, workload: ReportWorkload) -> list[str]:
    total = usage.total
    unknown = "not known without --simulate"
    rows = f"{total.num_row_padded_tokens} tokens in unused rows of decodes"
    context = (
        f"{total.num_context_padded_tokens} slots of decodes' context that hold nothing"
        f" ({percent(total.context_padding_ratio)})"
    )
    return [
        labelled("length padding", f"{total.num_length_padded_tokens} tokens behind prompts"),
        labelled("row padding", rows if usage.has_decodes else unknown),
        labelled("ctx padding", context if usage.has_decodes else unknown),
        labelled(
            "block padding",
            f"{workload.num_block_padded_tokens} slots in the last KV block of each prompt that"
            f" hold nothing, with {workload.block_size} tokens a block",
        ),
    ]
