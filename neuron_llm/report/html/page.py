"""The page: a summary, the pictures, and everything else as tables. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from neuron_llm.report.bucket_report import BucketReport
from neuron_llm.report.html.chart import TableData, render_table
from neuron_llm.report.html.markup import Markup, element, joined
from neuron_llm.report.html.pictures import pictures

_MAX_LISTED = 100


def render_page(report: BucketReport) -> str:
    """Return the report as one self-contained HTML document."""
    name = str(report.subject.path)
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        element("title", f"Buckets of {name}"),
        element("style", Markup(style)),
    )
    workload = report.workload
    of = f" under {workload.source.value.replace('_', ' ')} {workload.name}" if workload else ""
    body = element(
        "body",
        element(
            "main",
            element("h1", "Bucket report"),
            element("p", f"{name}{of}", class_="subject"),
            element("dl", *_summary(report), class_="summary"),
            element("div", *pictures(report), class_="figures"),
            *_tables(report),
        ),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def _summary(report: BucketReport) -> Iterator[Markup]:
    yield _fact("graphs", str(len(report.static.graphs)))
    uncovered = len(report.static.uncovered)
    yield _fact("steps without a graph", str(uncovered) if uncovered else "none")
    if report.workload is not None:
        yield _fact("prompts", str(report.workload.all_prompt_lengths.num_lengths))
        yield _fact("refused, too long", str(len(report.workload.refused)))
        yield _fact("bad rows", str(len(report.workload.trace.bad_rows)))
    if report.prefill is not None:
        advice = report.prefill
        yield _fact("prefill waste, current", f"{advice.current.padding_ratio:.1%}")
        verdict = "" if advice.is_saving else " (no saving)"
        recommended = f"{advice.recommended.padding_ratio:.1%}{verdict}"
        yield _fact("prefill waste, recommended", recommended)
        yield _fact("recommended prefill buckets", _sizes(advice.recommended.buckets))
        if advice.held_out is not None:
            yield _fact("on the held-out half", f"{advice.held_out.held_out.padding_ratio:.1%}")
    if report.what_if is not None:
        choice = report.what_if.decode_choice
        advised = "" if report.what_if.is_decode_advised else " (not advised)"
        yield _fact("decode rows", f"{_sizes(choice.num_seqs_buckets)}{advised}")
        contexts = choice.decode_context_length_buckets
        yield _fact("decode context buckets", _sizes(contexts) if contexts else "none")
        yield _fact("step times", str(report.timing))


def _fact(name: str, value: str) -> Markup:
    return element("div", element("dt", name), element("dd", value))


def _sizes(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))


def _tables(report: BucketReport) -> Iterator[Markup]:
    yield _table("Graphs", _graphs(report))
    if report.prefill is not None:
        yield _table("Chunk sizes", _chunk_sizes(report))
    workload = report.workload
    if workload is not None and workload.refused:
        rows = [[str(r.line), str(r.prompt_tokens)] for r in workload.refused]
        yield _listed("Prompts that are too long", ["line", "tokens"], rows)
    if workload is not None and workload.trace.bad_rows:
        rows = [[str(row.line), row.reason] for row in workload.trace.bad_rows]
        yield _listed("Bad rows", ["line", "reason"], rows)


def _listed(title: str, header: list[str], rows: list[list[str]]) -> Markup:
    more = len(rows) - _MAX_LISTED
    note = element("p", f"and {more} more, all of them in `--json`") if more > 0 else Markup("")
    return joined([_table(title, TableData(header, rows[:_MAX_LISTED])), note])


def _table(title: str, data: TableData) -> Markup:
    return element("section", element("h2", title), render_table(data))


def _graphs(report: BucketReport) -> TableData:
    header = ["graph", "serves", "worst", "uses", "real", "padded", "waste", "cached"]
    used = report.usage.by_bucket if report.usage else {}
    rows = []
    for graph in report.static.graphs:
        row = [graph.bucket.name, graph.range.description, f"{graph.range.worst_padding_ratio:.1%}"]
        counts = used.get(graph.bucket)
        if counts is None:
            rows.append([*row, *["-"] * 5])
            continue
        ratio = counts.padding_ratio
        sums = (counts.num_uses, counts.num_real_tokens, counts.num_padded_tokens)
        waste = "-" if ratio is None else f"{ratio:.1%}"
        rows.append([*row, *map(str, sums), waste, str(counts.num_cached_tokens)])
    return TableData(header, rows)


def _chunk_sizes(report: BucketReport) -> TableData:
    assert report.prefill is not None
    sizes = report.prefill.chunk_sizes
    header = ["chunk size", "graphs", "steps", "waste", f"cost, {sizes.price.unit}"]
    rows = [
        [
            str(option.max_chunk_tokens),
            str(option.score.num_graphs),
            str(option.score.total.num_uses),
            f"{option.score.padding_ratio:.1%}",
            f"{option.cost:.0f}" + (" (least)" if option is sizes.best else ""),
        ]
        for option in sizes.options
    ]
    return TableData(header, rows)
