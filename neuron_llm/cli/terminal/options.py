"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.library_settings import prepare_libraries

ARTIFACTS_DIR = Path("artifacts")

VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Debug log, and tracebacks of errors, on stderr."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no notices; errors stay.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, for machines.")
]
ArtifactOption = Annotated[
    Path | None,
    typer.Option(
        "--artifact",
        metavar="DIR",
        help="What `compile` wrote; without it, the latest in ./artifacts.",
        show_default=False,
    ),
]


def open_console(ctx: typer.Context, *, verbose: bool, quiet: bool) -> Console:
    """Return the console that `main` made; the switches may stand before or after the command."""
    console = ctx.obj
    assert isinstance(console, Console), "main() passes the console"
    console.is_verbose |= verbose
    console.is_quiet |= quiet
    prepare_libraries(verbose=console.is_verbose)
    return console
