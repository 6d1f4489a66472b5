"""The graphs of a report as CSV, one line each below a header."""

from __future__ import annotations

import csv
from io import StringIO

from neuron_llm.report.bucket_report import BucketReport


def render_csv(report: BucketReport) -> str:
    """Return every graph with its range and its uses; a cell is empty where nothing is known."""
    graphs = report.graphs_json()
    names = list(dict.fromkeys(name for graph in graphs for name in graph))
    stream = StringIO()
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(graphs)
    return stream.getvalue().rstrip("\n")
