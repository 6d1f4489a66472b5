"""`neuron-llm doctor`: what is installed, what the machine has, and whether an artifact runs."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuron_llm.artifact.latest import ARTIFACTS_DIR
from neuron_llm.cli.terminal.console import ExitCode
from neuron_llm.cli.terminal.options import (
    JsonOption,
    QuietOption,
    VerboseOption,
    open_console,
)
from neuron_llm.cli.terminal.status_line import StatusLine
from neuron_llm.compile.options import default_cache_dir

if TYPE_CHECKING:
    from neuron_llm.doctor.finding import Finding
    from neuron_llm.doctor.report import Report

_WIDTH = 80
_STATUS_INDENT = "  "
_TEXT_INDENT = " " * 11
_WAY_OUT_INDENT = " " * 13


def doctor_command(
    ctx: typer.Context,
    artifact: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Whether this artifact can run here, and if not, every reason.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Tell what is installed and what the machine has, and whether the two fit.

    Exit code 1 if the CPU backend, or the artifact that was asked about, cannot run here.

    Example: neuron-llm doctor --artifact artifacts/latest
    """
    from neuron_llm.doctor.host import Host
    from neuron_llm.doctor.report import Question, examine

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    cache_dir = os.environ.get("NEURON_LLM_CACHE_DIR")
    question = Question(
        artifact=artifact,
        cache_dir=Path(cache_dir) if cache_dir else default_cache_dir(),
        artifacts_dir=ARTIFACTS_DIR,
    )
    with StatusLine(console, "looking"):
        report = examine(Host.this_machine(dict(os.environ)), question)
    console.result(json.dumps(report.to_json()) if json_output else render_report(report))
    if not report.can_run:
        raise typer.Exit(ExitCode.ERROR)


def render_report(report: Report) -> str:
    """Return the report in lines that a terminal of 80 columns holds, the verdict last."""
    lines = []
    for section in report.sections:
        lines.append(section.title)
        for finding in section.findings:
            lines += _finding_lines(finding)
        lines.append("")
    return "\n".join([*lines, *_wrapped(_verdict(report), "", "")])


def _verdict(report: Report) -> str:
    if report.can_run:
        return f"{report.subject} can run here"
    because = dict.fromkeys(f"`{finding.subject}`" for finding in report.obstacles)
    return f"{report.subject} cannot run here, because of: {', '.join(because)}"


def _finding_lines(finding: Finding) -> list[str]:
    head = f"{_STATUS_INDENT}{finding.status:<7}  "
    lines = _wrapped(f"{finding.subject}: {finding.text}", head, _TEXT_INDENT)
    if finding.hint is not None:
        lines += _wrapped(f"hint: {finding.hint}", _TEXT_INDENT, _WAY_OUT_INDENT)
    if finding.command is not None:
        lines += _command_lines(finding.command)
    return lines


def _wrapped(text: str, first_indent: str, indent: str) -> list[str]:
    return textwrap.wrap(
        _visible(text),
        _WIDTH,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _command_lines(command: str) -> list[str]:
    """Break a command where a shell reads it as one."""
    room = " \\"
    lines = textwrap.wrap(
        _visible(command),
        _WIDTH - len(room),
        initial_indent=_TEXT_INDENT,
        subsequent_indent=_WAY_OUT_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*(line + room for line in lines[:-1]), lines[-1]]


def _visible(text: str) -> str:
    """Write out what would steer a terminal: a variable may hold anything."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
