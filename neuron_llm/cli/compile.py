"""`neuron-llm compile`: from a configuration file to an artifact."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuron_llm.artifact.latest import ARTIFACTS_DIR
from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.options import (
    JsonOption,
    QuietOption,
    VerboseOption,
    open_console,
)
from neuron_llm.errors import CompileError

if TYPE_CHECKING:
    from neuron_llm.backends.build.failure import GraphBuildError
    from neuron_llm.cli.render.compile_progress import CompileProgress
    from neuron_llm.compile.compiler import CompileResult
    from neuron_llm.compile.options import CompileOptions
    from neuron_llm.compile.planned_model import PlannedModel


def compile_command(
    ctx: typer.Context,
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="YAML file; its name becomes the artifact's.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the graphs and their memory, compile nothing.")
    ] = False,
    skip_weights: Annotated[
        bool,
        typer.Option(
            "--skip-weights", help="With --dry-run: plan from the model's config.json alone."
        ),
    ] = False,
    add_bucket: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BUCKET",
            help="One more: prefill:2048, decode:4 or decode:4x512; may be repeated.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Graphs built at the same time.", show_default="CPU count"),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="SECONDS", help="Give a graph up after so long.", show_default="none"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an artifact of another configuration.")
    ] = False,
    artifacts_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the artifact goes.")
    ] = ARTIFACTS_DIR,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="NEURON_LLM_CACHE_DIR",
            help="Where compiled graphs are kept for the next time.",
            show_default="~/.cache/neuron-llm",
        ),
    ] = None,
    isa_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Instructions that graphs may use: avx512_bf16, avx512, avx2 or portable.",
            show_default="the widest of this CPU",
        ),
    ] = None,
    no_custom_ops: Annotated[
        bool, typer.Option("--no-custom-ops", help="Plain aten graphs: slower, a reference.")
    ] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare the graphs with the eager model.")
    ] = False,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compile a configuration into an artifact.

    Example: neuron-llm compile configs/smollm2-135m.yaml
    """
    from neuron_llm.compile.options import CompileOptions, default_cache_dir
    from neuron_llm.compile.planned_model import plan_model

    if skip_weights and not dry_run:
        raise typer.BadParameter(
            "graphs need weights; add `--dry-run`", param_hint="--skip-weights"
        )
    console = open_console(ctx, verbose=verbose, quiet=quiet)
    options = CompileOptions(
        artifacts_dir=artifacts_dir,
        cache_dir=default_cache_dir() if cache_dir is None else cache_dir,
        num_jobs=jobs or os.cpu_count() or 1,
        force=force,
        isa_level=isa_level,
        custom_ops=not no_custom_ops,
        verify=not no_verify,
        timeout_s=timeout,
    )
    planned = plan_model(
        config,
        added_buckets=add_bucket or (),
        skip_weights=skip_weights,
        on_progress=console.notice,
    )
    for warning in planned.plan.warnings:
        console.warn(warning)
    if dry_run:
        _show_plan(console, planned, options, json_output=json_output)
    else:
        _compile(console, planned, options, json_output=json_output)


def _show_plan(
    console: Console,
    planned: PlannedModel,
    options: CompileOptions,
    *,
    json_output: bool,
) -> None:
    from neuron_llm.cli.render.plan_table import cached_graphs, plan_json, render_plan

    plan = planned.plan
    is_cached = cached_graphs(planned.loaded, plan, options)
    if json_output:
        console.result(json.dumps(plan_json(plan, is_cached)))
    else:
        console.result(render_plan(plan, is_cached))


def _compile(
    console: Console,
    planned: PlannedModel,
    options: CompileOptions,
    *,
    json_output: bool,
) -> None:
    from neuron_llm.backends.build.failure import GraphBuildError
    from neuron_llm.cli.render.compile_progress import CompileProgress
    from neuron_llm.compile.compiler import compile_planned

    started = time.perf_counter()
    with CompileProgress(console, len(planned.plan.buckets.all)) as progress:
        try:
            result = compile_planned(planned, options, progress.show)
        except KeyboardInterrupt:
            console.notice("interrupted: the graphs that are built stay in the cache")
            raise
        except GraphBuildError as error:
            raise CompileError(error.message, hint=_retry_hint(error)) from error
    seconds = time.perf_counter() - started
    console.notice(f"{progress.summary(seconds)} -> {result.artifact}")
    if result.obstacles:
        console.notice(f"the graphs do not run here, not verified: {'; '.join(result.obstacles)}")
    if json_output:
        console.result(json.dumps(_result_json(result, progress, seconds)))
    else:
        console.result(str(result.artifact))
    is_default = options.artifacts_dir == ARTIFACTS_DIR
    flag = "" if is_default else f" --artifact {result.artifact}"
    console.notice(f"next: neuron-llm run --prompts file.jsonl{flag}")


def _retry_hint(error: GraphBuildError) -> str:
    command = shlex.join(["neuron-llm", *sys.argv[1:], *error.retry_options])
    return f"the other graphs are in the cache; this builds the rest: `{command}`"


def _result_json(
    result: CompileResult, progress: CompileProgress, seconds: float
) -> dict[str, object]:
    return {
        "schema_version": 1,
        "artifact": str(result.artifact),
        "artifact_id": result.manifest.artifact_id,
        "backend": result.manifest.backend,
        "num_graphs": progress.num_graphs,
        "num_built": progress.num_built,
        "num_cached": progress.num_cached,
        "duration_s": seconds,
        "graphs": [
            {"graph": graph.name, "compile_s": graph.compile_seconds}
            for graph in result.manifest.graphs
        ],
        "warnings": list(result.plan.warnings),
    }
