"""A whole bucket report as text of at most 80 columns, and its graphs as CSV."""

from __future__ import annotations

import csv
from io import StringIO

from neuron_llm.cli.render.report_graphs import render_graphs, render_usage
from neuron_llm.cli.render.report_prefill import render_chunk_sizes, render_curve, render_prefill
from neuron_llm.cli.render.report_workload import render_workload
from neuron_llm.report.bucket_report import BucketReport


def render_report(report: BucketReport) -> str:
    """Return all sections that there is something to say in, a blank line between them."""
    plan = report.subject.plan
    sections = [render_graphs(report.static)]
    if report.workload is not None:
        buckets = plan.buckets.num_batched_tokens_buckets
        sections.append(render_workload(report.workload, buckets, plan.max_model_len))
    if report.usage is not None:
        sections.append(render_usage(report))
    if report.prefill is not None:
        sections.append(render_prefill(report.prefill))
        sections.append(render_curve(report.prefill))
        sections.append(render_chunk_sizes(report.prefill.chunk_sizes, plan.max_num_batched_tokens))
    if report.what_if is not None:
        from neuron_llm.cli.render.report_what_if import render_what_if  # numpy comes with it

        assert report.timing is not None
        sections.append(render_what_if(report.what_if, report.timing))
    return "\n\n".join(sections)


def render_csv(report: BucketReport) -> str:
    """Return every graph with its range and its uses; a cell is empty where nothing is known."""
    graphs = report.graphs_json()
    names = list(dict.fromkeys(name for graph in graphs for name in graph))
    stream = StringIO()
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(graphs)
    return stream.getvalue().rstrip("\n")
