"""`neuron-llm artifact`: check, tidy up, and move artifacts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from neuron_llm.cli.render.table import counted
from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.options import JsonOption, QuietOption, VerboseOption, open_console
from neuron_llm.cli.terminal.status_line import StatusLine
from neuron_llm.errors import ArtifactError

artifact_app = typer.Typer(
    name="artifact",
    help="Check, tidy up, and move artifacts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ArtifactArgument = Annotated[Path, typer.Argument(metavar="DIR", help="What `compile` wrote.")]


@artifact_app.command("verify", short_help="Compare every byte with its checksum.")
def verify_command(
    ctx: typer.Context,
    artifact: ArtifactArgument,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare every byte of an artifact with its checksum, and name every damaged file.

    Exit code 1 if one is damaged. Example: neuron-llm artifact verify artifacts/latest
    """
    from neuron_llm.artifact.files import check_files
    from neuron_llm.quantities import shown_bytes

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    with _FileStatus(console, "checking") as status:
        checked = check_files(artifact, status.show)
    for path in checked.unlisted:
        console.warn(f"`{path}` is not part of the artifact")
    damages = checked.damages
    if json_output:
        document = {
            "artifact": str(artifact),
            "num_files": checked.num_files,
            "num_bytes": checked.num_bytes,
            "damaged": [{"path": damage.path, "reason": damage.reason} for damage in damages],
            "unlisted": list(checked.unlisted),
        }
        console.result(_document(document))
    elif damages:
        console.result("\n".join(f"damaged  {damage.path}: {damage.reason}" for damage in damages))
    else:
        what = f"{counted(checked.num_files, 'file')}, {shown_bytes(checked.num_bytes)}"
        console.result(f"{artifact}: {what}, every byte as it was compiled")
    if damages:
        raise ArtifactError(
            f"{counted(len(damages), 'file')} of `{artifact}` damaged",
            hint="copy the artifact again, or compile it again: `neuron-llm compile CONFIG`",
        )


@artifact_app.command("prune", short_help="Remove what killed compiles left.")
def prune_command(
    ctx: typer.Context,
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders of artifacts, as `artifacts`.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Remove what killed compiles left in folders of artifacts; artifacts themselves stay.

    Example: neuron-llm artifact prune artifacts --dry-run
    """
    from neuron_llm.artifact.scratch import prune_artifacts
    from neuron_llm.quantities import shown_bytes

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    leftovers = [
        leftover for folder in folders for leftover in prune_artifacts(folder, dry_run=dry_run)
    ]
    total = sum(leftover.size_bytes for leftover in leftovers)
    if json_output:
        removed = [{"path": str(item.path), "size_bytes": item.size_bytes} for item in leftovers]
        console.result(_document({"is_dry_run": dry_run, "removed": removed, "num_bytes": total}))
        return
    for leftover in leftovers:
        console.result(f"{leftover.path}  {shown_bytes(leftover.size_bytes)}")
    verb = "would remove" if dry_run else "removed"
    console.notice(f"{verb} {counted(len(leftovers), 'leftover')}, {shown_bytes(total)}")


@artifact_app.command("pack", short_help="Pack an artifact into one file.")
def pack_command(
    ctx: typer.Context,
    artifact: ArtifactArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To write, such as `tiny.tar`.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Pack an artifact into one file that can be copied: an uncompressed tar with checksums.

    Example: neuron-llm artifact pack artifacts/tiny tiny.tar
    """
    from neuron_llm.artifact.packed import pack_artifact

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    with _FileStatus(console, "packing") as status:
        packed = pack_artifact(artifact, file, force=force, on_file=status.show)
    document = {"num_files": packed.num_files, "num_bytes": packed.num_bytes}
    console.result(_document({"file": str(file), **document}) if json_output else str(file))
    console.notice(f"next: neuron-llm artifact unpack {file} DIR")


@artifact_app.command("unpack", short_help="Unpack that file into a new directory.")
def unpack_command(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `artifact pack` wrote.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="To make.")],
    json_output: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Unpack an artifact into a directory that does not exist yet, checking every byte.

    Example: neuron-llm artifact unpack tiny.tar artifacts/tiny
    """
    from neuron_llm.artifact.packed import unpack_artifact

    console = open_console(ctx, verbose=verbose, quiet=quiet)
    with _FileStatus(console, "unpacking") as status:
        unpacked = unpack_artifact(file, directory, on_file=status.show)
    document = {"num_files": unpacked.num_files, "num_bytes": unpacked.num_bytes}
    artifact = {"artifact": str(directory), **document}
    console.result(_document(artifact) if json_output else str(directory))
    console.notice(f"next: neuron-llm run --artifact {directory}")


class _FileStatus(StatusLine):
    """Names the file that is being read."""

    def __init__(self, console: Console, verb: str) -> None:
        super().__init__(console, verb)
        self._verb = verb

    def show(self, path: str) -> None:
        self.say(f"{self._verb} {path}")


def _document(content: dict[str, Any]) -> str:
    return json.dumps({"schema_version": 1, **content})
