"""The command line: `main` is the one place that turns errors into text and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from neuron_llm.cli.artifact import artifact_app
from neuron_llm.cli.bucket_report import bucket_report_command
from neuron_llm.cli.cache import cache_app
from neuron_llm.cli.compile import compile_command
from neuron_llm.cli.doctor import doctor_command
from neuron_llm.cli.inspect import inspect_command
from neuron_llm.cli.run import run_command
from neuron_llm.cli.terminal.console import Console, ExitCode, open_standard_streams
from neuron_llm.cli.terminal.interrupts import exit_on_sigterm
from neuron_llm.cli.terminal.options import QuietOption, VerboseOption, open_console
from neuron_llm.errors import NeuronLLMError
from neuron_llm.version import __version__

app = typer.Typer(
    name="neuron-llm",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compile")(compile_command)
app.command("run")(run_command)
app.command("bucket-report", short_help="Show what padding costs, and better buckets.")(
    bucket_report_command
)
app.command("doctor", short_help="Tell whether this machine, or an artifact on it, can run.")(
    doctor_command
)
app.command("inspect", short_help="Show what an artifact is.")(inspect_command)
app.add_typer(artifact_app)
app.add_typer(cache_app)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"neuron-llm {__version__}")
        raise typer.Exit


@app.callback()
def neuron_llm(
    ctx: typer.Context,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Compile an LLM to one static graph per bucket, and run prompts through them."""
    open_console(ctx, verbose=verbose, quiet=quiet)


def main() -> None:
    """Run the command line and end the process with its exit code.

    Raises:
        SystemExit: always; see `ExitCode`.
    """
    open_standard_streams()
    console = Console()
    try:
        with exit_on_sigterm():
            app(prog_name="neuron-llm", obj=console)
    except NeuronLLMError as error:
        _show_traceback(console)
        console.show_failure(error)
        sys.exit(ExitCode.ERROR)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except OSError as error:
        _show_traceback(console)
        console.error(_describe(error))
        sys.exit(ExitCode.ERROR)
    except Exception as error:
        _show_traceback(console)
        console.error(f"this is a bug in neuron-llm: {type(error).__name__}: {error}")
        if not console.is_verbose:
            console.hint("run again with `--verbose` and report what it shows")
        sys.exit(ExitCode.INTERNAL_ERROR)


def _show_traceback(console: Console) -> None:
    if console.is_verbose:
        traceback.print_exc()


def _describe(error: OSError) -> str:
    """Put what the operating system refused into one line: a full disk, a missing permission."""
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    # Of two names the second is the one that was written.
    path = error.filename2 or error.filename
    return f"{reason}: `{path}`" if path else reason


if __name__ == "__main__":
    main()
