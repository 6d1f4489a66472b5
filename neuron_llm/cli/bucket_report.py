"""`neuron-llm bucket-report`: what each graph was used for, and what its padding cost."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from neuron_llm.cli.artifact_choice import choose_artifact
from neuron_llm.cli.console import Console
from neuron_llm.cli.counting import counted
from neuron_llm.cli.options import (
    ArtifactOption,
    JsonOption,
    QuietOption,
    VerboseOption,
    open_console,
)
from neuron_llm.cli.padding_table import render_padding
from neuron_llm.cli.table import render_table
from neuron_llm.compile.manifest import Manifest
from neuron_llm.report.bucket_range import bucket_ranges
from neuron_llm.report.padding import PaddingAccount
from neuron_llm.report.run_log import RunHeader, last_run_path
from neuron_llm.report.run_log_reader import RunLogReader


def bucket_report_command(
    ctx: typer.Context,
    artifact: ArtifactOption = None,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what every graph was used for.

    The figures are those of the last run in this directory. `padded` counts tokens of padding, in
    the length of a prefill or the rows of a decode; `waste` is their share; `cached` counts prompt
    tokens that the prefix cache spared; `ctx waste` is the share of a decode's context, in its real
    rows, that holds no token.

    Example: neuron-llm bucket-report --artifact artifacts/smollm2-135m
    """
    console = open_console(ctx, verbose=verbose, quiet=quiet)
    directory, manifest = choose_artifact(artifact, console)
    account = PaddingAccount(manifest.buckets.all)
    run = _read_last_run(manifest, account)
    if json_output:
        console.result(json.dumps(_report_json(directory, manifest, run, account)))
    elif run is not None:
        _show_run(console, run, account)
    else:
        _show_graphs(console, manifest)


def _read_last_run(manifest: Manifest, account: PaddingAccount) -> RunHeader | None:
    """Add the steps of the last run to the account; None if there was no run here."""
    path = last_run_path(manifest.artifact_id)
    if not path.exists():
        return None
    with RunLogReader(path, manifest.artifact_id, manifest.buckets.all) as log:
        for step in log:
            account.add(step)
        return log.header


def _show_run(console: Console, run: RunHeader, account: PaddingAccount) -> None:
    started = datetime.fromisoformat(run.started_at)
    num_steps = counted(account.total.num_uses, "step")
    console.notice(f"last run here: {started:%Y-%m-%d %H:%M:%S}, {num_steps}")
    console.result(render_padding(account.by_bucket, account.total))


def _show_graphs(console: Console, manifest: Manifest) -> None:
    rows = [
        [bucket.name, counts.description, f"{counts.worst_padding_ratio:.1%}"]
        for bucket, counts in bucket_ranges(manifest.buckets).items()
    ]
    console.result(render_table(["graph", "serves", "worst waste"], rows, num_text_columns=2))
    console.notice("no run of this artifact in this directory yet")
    console.notice("next: neuron-llm run --prompts file.jsonl")


def _report_json(
    directory: Path, manifest: Manifest, run: RunHeader | None, account: PaddingAccount
) -> dict[str, Any]:
    ranges = bucket_ranges(manifest.buckets)
    return {
        "schema_version": 1,
        "artifact": str(directory),
        "artifact_id": manifest.artifact_id,
        "backend": manifest.backend,
        "last_run": None if run is None else {"started_at": run.started_at},
        "graphs": [
            {"graph": bucket.name, **ranges[bucket].to_json(), **counts.to_json()}
            for bucket, counts in account.by_bucket.items()
        ],
        "total": account.total.to_json(),
    }
