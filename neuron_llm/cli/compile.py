"""`neuron-llm compile`: from a configuration file to an artifact."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.options import (
    ARTIFACTS_DIR,
    JsonOption,
    QuietOption,
    VerboseOption,
    open_console,
)
from neuron_llm.errors import CompileError

if TYPE_CHECKING:
    from neuron_llm.backends.build.failure import GraphBuildError
    from neuron_llm.cli.render.compile_progress import CompileProgress
    from neuron_llm.compile.compiler import CompileOptions, CompileResult
    from neuron_llm.compile.config.file import LoadedConfig
    from neuron_llm.compile.plan.plan import CompilePlan


def compile_command(
    ctx: typer.Context,
    config: Annotated[Path, typer.Argument(help="YAML file; its name becomes the artifact's.")],
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
    from neuron_llm.compile.compiler import CompileOptions

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
        extend=bool(add_bucket),
    )
    loaded, plan = _plan(console, config, add_bucket or [], skip_weights=skip_weights)
    if dry_run:
        _show_plan(console, loaded, plan, options, json_output=json_output)
    else:
        _compile(console, loaded, plan, options, json_output=json_output)


def default_cache_dir() -> Path:
    """Return the compile cache of this user, below `XDG_CACHE_HOME` where that is set."""
    # The specification says to ignore a relative path.
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache_home if cache_home.is_absolute() else Path.home() / ".cache") / "neuron-llm"


def _plan(
    console: Console, config: Path, added: Sequence[str], *, skip_weights: bool
) -> tuple[LoadedConfig, CompilePlan]:
    from neuron_llm.backends.neuron.packages import installed_binding
    from neuron_llm.compile.added_buckets import with_added_buckets
    from neuron_llm.compile.config.file import load_config
    from neuron_llm.compile.config.hub import with_local_model
    from neuron_llm.compile.plan.plan import plan_compile

    loaded = load_config(config, skip_weights=skip_weights)
    if loaded.model_path is None:
        console.notice(f"fetching `{loaded.config.model}` at revision `{loaded.config.revision}`")
        loaded = with_local_model(loaded, skip_weights=skip_weights)
    model = loaded.model_spec
    assert model is not None, "the model is on this machine now"
    plan = plan_compile(loaded, model, auto_binding=installed_binding())
    if added:
        loaded = with_added_buckets(loaded, plan, added)
        plan = plan_compile(loaded, model, auto_binding=installed_binding())
    for warning in plan.warnings:
        console.warn(warning)
    return loaded, plan


def _show_plan(
    console: Console,
    loaded: LoadedConfig,
    plan: CompilePlan,
    options: CompileOptions,
    *,
    json_output: bool,
) -> None:
    from neuron_llm.cli.render.plan_table import cached_graphs, plan_json, render_plan

    is_cached = cached_graphs(loaded, plan, options)
    if json_output:
        console.result(json.dumps(plan_json(plan, is_cached)))
    else:
        console.result(render_plan(plan, is_cached))


def _compile(
    console: Console,
    loaded: LoadedConfig,
    plan: CompilePlan,
    options: CompileOptions,
    *,
    json_output: bool,
) -> None:
    from neuron_llm.backends.build.failure import GraphBuildError
    from neuron_llm.cli.render.compile_progress import CompileProgress
    from neuron_llm.compile.compiler import compile_artifact

    started = time.perf_counter()
    with CompileProgress(console, len(plan.buckets.all)) as progress:
        try:
            result = compile_artifact(loaded, plan, options, progress.show)
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
        console.result(json.dumps(_result_json(result, progress, seconds, plan)))
    else:
        console.result(str(result.artifact))
    is_default = options.artifacts_dir == ARTIFACTS_DIR
    flag = "" if is_default else f" --artifact {result.artifact}"
    console.notice(f"next: neuron-llm run --prompts file.jsonl{flag}")


def _retry_hint(error: GraphBuildError) -> str:
    command = shlex.join(["neuron-llm", *sys.argv[1:], *error.retry_options])
    return f"the other graphs are in the cache; this builds the rest: `{command}`"


def _result_json(
    result: CompileResult, progress: CompileProgress, seconds: float, plan: CompilePlan
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
        "warnings": list(plan.warnings),
    }
