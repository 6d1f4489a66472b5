"""The workload of a report: how long its prompts are, and which of them are left out."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_llm.cli.render.report_lines import first_few, labelled, section
from neuron_llm.cli.render.table import counted, render_table
from neuron_llm.report.report_workload import ReportWorkload
from neuron_llm.report.workload.length_histogram import LengthBin, LengthHistogram

_BAR_WIDTH = 40


def render_workload(workload: ReportWorkload, buckets: Sequence[int], max_model_len: int) -> str:
    """Return the lengths, and whatever of the workload cannot run."""
    trace, prompts = workload.trace, workload.all_prompt_lengths
    cached, totals = sum(workload.work.num_cached_tokens), trace.total_lengths
    texts = {
        "prompts": f"{prompts.num_lengths} ({trace.format_name}), {_lengths(prompts)}",
        "with output": _totals(workload) if totals.counts else "",
        "cached": f"{cached} prompt tokens found in the prefix cache" if cached else "",
        "chunks": _chunks(workload) if trace.requests else "",
        "too long": _refused(workload, max_model_len) if workload.refused else "",
        "bad rows": _bad_rows(workload) if trace.bad_rows else "",
        "out of order": _unsorted(trace.num_unsorted) if trace.num_unsorted else "",
    }
    return section(
        f"workload: {workload.source.value.replace('_', ' ')} {workload.name}",
        *(labelled(label, text) for label, text in texts.items() if text),
        "",
        _histogram(workload.bins(buckets)),
    )


def _lengths(lengths: LengthHistogram) -> str:
    percentiles = ", ".join(f"p{p} {lengths.percentile(p)}" for p in (50, 90, 99))
    return f"{lengths.num_tokens} tokens: {percentiles}, longest {lengths.longest}"


def _totals(workload: ReportWorkload) -> str:
    """Return the lengths of prompt and output together, and of which requests they are."""
    totals, num_all = workload.trace.total_lengths, workload.all_prompt_lengths.num_lengths
    is_of_all = totals.num_lengths == num_all
    scope = "" if is_of_all else f"of {totals.num_lengths} that can run and say it, "
    return scope + _lengths(totals)


def _chunks(workload: ReportWorkload) -> str:
    several, limit = workload.num_chunked_prompts, workload.max_chunk_tokens
    if not several:
        return f"none needs more than one of {limit} tokens"
    return (
        f"{counted(several, 'prompt')} of several chunks of {limit} tokens, the longest of"
        f" {workload.max_chunks}"
    )


def _refused(workload: ReportWorkload, max_model_len: int) -> str:
    shown = [f"line {r.line} with {r.prompt_tokens}" for r in workload.refused]
    return (
        f"{counted(len(shown), 'prompt')} over `max_model_len` {max_model_len} (of which one token"
        f" is for output), in no figure below: {first_few(shown)}"
    )


def _unsorted(num_rows: int) -> str:
    return f"{counted(num_rows, 'row')} earlier than the row above"


def _bad_rows(workload: ReportWorkload) -> str:
    rows = workload.trace.bad_rows
    return f"{len(rows)}: {first_few([f'line {row.line}: {row.reason}' for row in rows])}"


def _histogram(bins: Sequence[LengthBin]) -> str:
    most = max((each.num_lengths for each in bins), default=0) or 1
    rows = [
        [
            f"{each.min_tokens}-{each.max_tokens}",
            "#" * round(_BAR_WIDTH * each.num_lengths / most),
            str(each.num_lengths),
        ]
        for each in bins
    ]
    return render_table(["prompt tokens", "", "prompts"], rows, num_text_columns=2)
