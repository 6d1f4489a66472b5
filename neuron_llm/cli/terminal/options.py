"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuron_llm.artifact.latest import ARTIFACTS_DIR, find_latest
from neuron_llm.artifact.manifest import Manifest, read_manifest
from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.library_settings import prepare_libraries
from neuron_llm.errors import NeuronLLMError

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


def choose_artifact(given: Path | None, console: Console) -> tuple[Path, Manifest]:
    """Return the directory and manifest of the given artifact or the latest, and say which it is.

    Raises:
        ArtifactError: there is none, or it is damaged.
    """
    directory = find_latest(ARTIFACTS_DIR) if given is None else given
    manifest = read_manifest(directory)
    which = "latest artifact" if given is None else "artifact"
    console.notice(f"{which}: {directory} (id {manifest.artifact_id}, {manifest.backend})")
    return directory, manifest


def read_template(path: Path) -> str:
    """Return a Jinja chat template.

    Raises:
        NeuronLLMError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise NeuronLLMError(
            f"cannot read the chat template `{path}`: {(reason or str(error)).lower()}",
            hint="give a Jinja file with `--template FILE`",
        ) from error
