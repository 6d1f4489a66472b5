"""`neuron-llm inspect`: what an artifact is, from its manifest alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neuron_llm.cli.render.table import render_table
from neuron_llm.cli.terminal.options import JsonOption, QuietOption, VerboseOption, open_console

if TYPE_CHECKING:
    from neuron_llm.artifact.manifest import GraphEntry, Manifest


def inspect_command(
    ctx: typer.Context,
    artifact: Annotated[
        Path | None,
        typer.Argument(
            metavar="ARTIFACT",
            help="What `compile` wrote; without it, the latest in ./artifacts.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what an artifact is: model, sizes, graphs, versions, and whether it was verified.

    Loads no graph. Example: neuron-llm inspect artifacts/smollm2-135m
    """
    from neuron_llm.artifact.summary import artifact_summary
    from neuron_llm.cli.terminal.options import choose_artifact

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    directory, manifest = choose_artifact(artifact, console)
    if json_output:
        console.result(json.dumps(artifact_summary(directory, manifest)))
    else:
        console.result(render_artifact(manifest))


def render_artifact(manifest: Manifest) -> str:
    """Return what a manifest says: a line for each part, and the table of graphs."""
    from neuron_llm.artifact.summary import is_verified
    from neuron_llm.quantities import shown_bytes

    settings, model = manifest.settings, manifest.model
    versions = {"neuron-llm": manifest.neuron_llm_version, **manifest.backend_versions}
    weights = manifest.weights
    tied = f", {len(weights.aliases)} tied" if weights.aliases else ""
    total = sum(entry.size_bytes for entry in manifest.all_files())
    verified = "every graph, against the eager model" if is_verified(manifest) else "no"
    revision = f", revision {model.revision}" if model.revision else ""
    lines = {
        "name": manifest.name,
        "id": manifest.artifact_id,
        "model": f"{manifest.config.get('model')} ({model.model_type}{revision})",
        "sizes": f"{model.num_layers} layers, {model.num_kv_heads} KV heads of {model.head_dim},"
        f" vocabulary of {model.vocab_size}",
        "limits": f"max_model_len {settings.max_model_len}, max_num_seqs {settings.max_num_seqs},"
        f" max_num_batched_tokens {settings.max_num_batched_tokens}",
        "KV cache": f"{settings.num_blocks} blocks of {settings.block_size} tokens",
        "dtype": settings.dtype,
        "gives": "the most likely tokens" if settings.samples_greedily else "logits",
        "backend": manifest.backend,
        "needs": "; ".join(
            f"{name}: {' '.join(values)}" for name, values in manifest.requirements.items()
        ),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "weights": f"{shown_bytes(weights.file.size_bytes)}, stored once for all graphs{tied}",
        "all files": shown_bytes(total),
        "verified": verified,
    }
    head = [f"{name:<9}  {value}" for name, value in lines.items()]
    return "\n".join([*head, "", _graph_table(manifest)])


def _graph_table(manifest: Manifest) -> str:
    header = ["graph", "serves", "verified", "worst error", "of", "compiled in", "size"]
    return render_table(header, _graph_rows(manifest), num_text_columns=3)


def _graph_rows(manifest: Manifest) -> list[list[str]]:
    from neuron_llm.report.run.bucket_range import bucket_ranges

    ranges = bucket_ranges(manifest.buckets)
    return [_graph_row(graph, ranges[graph.bucket].description) for graph in manifest.graphs]


def _graph_row(graph: GraphEntry, serves: str) -> list[str]:
    from neuron_llm.quantities import shown_bytes

    verdict = graph.verification
    judged = ["no", "-", "-"]
    if verdict is not None:
        cases = f"{verdict.num_cases} cases"
        judged = [cases, f"{verdict.worst_error:.2g}", f"{verdict.tolerance:.2g}"]
    size = shown_bytes(sum(entry.size_bytes for entry in graph.files))
    return [graph.name, serves, *judged, f"{graph.compile_seconds:.1f} s", size]
