"""`neuron-llm cache`: what the compile cache holds, and making room in it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuron_llm.cli.render.table import render_table
from neuron_llm.cli.terminal.options import JsonOption, QuietOption, VerboseOption, open_console
from neuron_llm.cli.terminal.quantities import parse_bytes, parse_seconds
from neuron_llm.quantities import shown_span

if TYPE_CHECKING:
    from neuron_llm.backends.build.inventory import CacheEntry

cache_app = typer.Typer(
    name="cache",
    help="What the compile cache holds, and making room in it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CacheDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="NEURON_LLM_CACHE_DIR",
        help="The compile cache.",
        show_default="~/.cache/neuron-llm",
    ),
]
_MAX_SHOWN_KEY = 16


@cache_app.command("list", short_help="List what is there, with sizes and ages.")
def list_command(
    ctx: typer.Context,
    cache_dir: CacheDirOption = None,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """List graphs, libraries, converted checkpoints, logs and what compilers left, with their ages.

    Example: neuron-llm cache list
    """
    from neuron_llm.backends.build.inventory import list_cache
    from neuron_llm.compile.options import default_cache_dir
    from neuron_llm.quantities import shown_bytes

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    root = default_cache_dir() if cache_dir is None else cache_dir
    entries = list_cache(root)
    total = _total_bytes(entries)
    if json_output:
        document = {"cache": str(root), "entries": _entries_json(entries), "total_bytes": total}
        console.result(json.dumps({"schema_version": 1, **document}))
        return
    if entries:
        console.result(_table(entries) + "\n")
    console.result(f"{_counted(entries)} in {root}, {shown_bytes(total)}")


@cache_app.command("prune", short_help="Make room; what compiles use or build stays.")
def prune_command(
    ctx: typer.Context,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Remove what was not used for so long, as `30d`."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Remove what was used least until no more stays."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    cache_dir: CacheDirOption = None,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Make room in the compile cache; what running compiles use or build stays.

    Without a limit only what killed processes left goes, and keys that lead nowhere.

    Example: neuron-llm cache prune --older-than 30d --max-size 5GiB
    """
    from neuron_llm.backends.build.inventory import PruneLimits, prune_cache
    from neuron_llm.compile.options import default_cache_dir
    from neuron_llm.quantities import shown_bytes

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    limits = PruneLimits(
        max_age_s=None if older_than is None else parse_seconds(older_than),
        max_size_bytes=None if max_size is None else parse_bytes(max_size),
    )
    root = default_cache_dir() if cache_dir is None else cache_dir
    pruned = prune_cache(root, limits, dry_run=dry_run)
    removed, kept = _total_bytes(pruned.removed), _total_bytes(pruned.kept)
    if json_output:
        document = {
            "cache": str(root),
            "is_dry_run": dry_run,
            "removed": _entries_json(pruned.removed),
            "removed_bytes": removed,
            "in_use": _entries_json(pruned.in_use),
            "kept_bytes": kept,
        }
        console.result(json.dumps({"schema_version": 1, **document}))
        return
    if pruned.removed:
        console.result(_table(pruned.removed))
    verb = "would remove" if dry_run else "removed"
    console.notice(
        f"{verb} {_counted(pruned.removed)}, {shown_bytes(removed)}; {shown_bytes(kept)} stay"
    )
    if pruned.in_use:
        size = shown_bytes(_total_bytes(pruned.in_use))
        console.warn(f"{_counted(pruned.in_use)}, {size}, stay: a running compile may need them")


def _counted(entries: Sequence[CacheEntry]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries)} entries"


def _total_bytes(entries: Sequence[CacheEntry]) -> int:
    return sum(entry.size_bytes for entry in entries)


def _table(entries: Sequence[CacheEntry]) -> str:
    from neuron_llm.quantities import shown_bytes

    now = time.time()
    rows = [
        [
            entry.kind,
            entry.name if entry.kind in ("log", "library") else entry.name[:_MAX_SHOWN_KEY],
            shown_bytes(entry.size_bytes),
            shown_span(now - entry.last_used),
        ]
        for entry in entries
    ]
    return render_table(["kind", "name", "size", "last used"], rows, num_text_columns=2)


def _entries_json(entries: Sequence[CacheEntry]) -> list[dict[str, Any]]:
    now = time.time()
    return [
        {
            "kind": entry.kind,
            "name": entry.name,
            "size_bytes": entry.size_bytes,
            "last_used_age_s": max(0.0, now - entry.last_used),
        }
        for entry in entries
    ]
