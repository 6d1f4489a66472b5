"""`neuron-llm bucket-report`: what padding costs, and which buckets would cost least."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuron_llm.backends.neuron.generations import GENERATIONS
from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.options import (
    ArtifactOption,
    JsonOption,
    QuietOption,
    VerboseOption,
    choose_artifact,
    open_console,
)

if TYPE_CHECKING:
    from neuron_llm.report.bucket_report import BucketReport

_TARGETS = ("cpu", *GENERATIONS)


def bucket_report_command(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="YAML file to plan; without it, an artifact."),
    ] = None,
    artifact: ArtifactOption = None,
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Workload: prompts, as `run` takes them."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Workload: a trace, CSV or JSON lines.")
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Jinja chat template, in place of the model's."),
    ] = None,
    max_graphs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Prefill graphs to recommend.", show_default="as many as there are"
        ),
    ] = None,
    granularity: Annotated[
        int, typer.Option(min=1, help="Recommended buckets but the last are multiples of it.")
    ] = 1,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Largest chunk to recommend buckets for.", show_default="as configured"
        ),
    ] = None,
    output_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Output of requests that do not say.",
            show_default="the median of those that do, or 128",
        ),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate configurations; recommend decode buckets.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Step times by a device's roofline: {', '.join(_TARGETS)}.",
            show_default="measured in the last run, if any",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Copy of CONFIG with the recommended lists."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --write.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The report with pictures, one file.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="The graphs as CSV on stdout.")] = False,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what padding costs, and which buckets would cost least.

    Graphs are those of CONFIG, which need not be compiled, or of an artifact. The workload is that
    of --prompts or --trace, or else the artifact's last run in this directory.

    Example: neuron-llm bucket-report configs/smollm2-135m.yaml --prompts examples/prompts.jsonl
    """
    from neuron_llm.cli.render.report_html import check_html_path, write_html
    from neuron_llm.cli.report_write import check_write_usage, write_recommendation
    from neuron_llm.cli.terminal.options import read_template
    from neuron_llm.report.report_builder import ReportQuestion, build_report

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    _exclude({"CONFIG": config, "`--artifact`": artifact})
    _exclude({"`--prompts`": prompts, "`--trace`": trace})
    _exclude({"`--json`": json_output or None, "`--csv`": csv or None})
    if template is not None and prompts is None:
        raise typer.BadParameter("`--template` has no effect without `--prompts`")
    check_write_usage(config, write, force=force)
    if html is not None:
        check_html_path(html, (config, prompts, trace, template, write))
    question = ReportQuestion(
        prompts=prompts,
        trace=trace,
        chat_template=None if template is None else read_template(template),
        max_graphs=max_graphs,
        granularity=granularity,
        max_chunk_tokens=max_num_batched_tokens,
        output_tokens=output_tokens,
        is_simulated=simulate,
        target=target,
    )
    directory = None if config is not None else choose_artifact(artifact, console)[0]
    report = build_report(
        question,
        config=config,
        artifact=directory,
        on_progress=console.notice,
        on_warning=console.warn,
    )
    _advise_workload(console, report, config)
    _show(console, report, as_json=json_output, as_csv=csv)
    if html is not None:
        write_html(console, report, html)
    if write is not None:
        is_forced_list = max_graphs is not None or max_num_batched_tokens is not None
        write_recommendation(console, report, write, is_forced_list=is_forced_list, force=force)


def _exclude(given: dict[str, object]) -> None:
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise typer.BadParameter(f"{' and '.join(names)} exclude each other")


def _advise_workload(console: Console, report: BucketReport, config: Path | None) -> None:
    """Say what is missing for more than the graphs themselves."""
    if report.workload is None:
        if config is None:
            console.notice("no run of this artifact in this directory yet")
            console.notice("next: neuron-llm run --prompts file.jsonl")
        else:
            console.notice(f"next: neuron-llm bucket-report {config} --prompts file.jsonl")
    elif report.prefill is None:
        console.warn("no prompt of the workload can run within `max_model_len`")


def _show(console: Console, report: BucketReport, *, as_json: bool, as_csv: bool) -> None:
    from neuron_llm.cli.render.report_text import render_csv, render_report

    if as_json:
        console.result(json.dumps(report.to_json()))
    elif as_csv:
        console.result(render_csv(report))
    else:
        console.result(render_report(report))
