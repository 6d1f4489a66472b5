"""What a command leaves: results on stdout, everything else on stderr, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import IntEnum

from rich.console import Console as RichConsole
from rich.status import Status
from rich.text import Text

from neuron_llm.errors import ConfigError, NeuronLLMError


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    ERROR = 1
    """An expected failure; the message says how to mend it."""
    USAGE = 2
    """The command line is wrong; typer's own code."""
    SOME_LINES_FAILED = 3
    """A batch job finished, and some of its lines have an error instead of a result."""
    INTERNAL_ERROR = 70
    INTERRUPTED = 130
    TERMINATED = 143


class Console:
    """Writes for people on stderr, and results on stdout unchanged.

    Text that comes from the user is never read as markup, never wrapped, and steers no terminal.

    Attributes:
        is_quiet: notices and progress are left out; results and errors stay.
        is_verbose: errors come with their traceback.
    """

    def __init__(self) -> None:
        self.is_quiet = False
        self.is_verbose = False
        self._stderr = RichConsole(stderr=True, markup=False, highlight=False, soft_wrap=True)

    @property
    def shows_progress(self) -> bool:
        """Whether a line that is written over and over has somebody to see it."""
        return self._stderr.is_terminal and not self.is_quiet

    def result(self, text: str) -> None:
        """Write a result, one or more whole lines, on stdout."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def notice(self, text: str) -> None:
        """Tell what is going on."""
        if not self.is_quiet:
            self._stderr.print(visible(text))

    def warn(self, text: str) -> None:
        """Tell what works, but perhaps not as meant."""
        if not self.is_quiet:
            self._labelled("warning", "yellow", text)

    def hint(self, text: str) -> None:
        """Tell the way out of an error."""
        self._labelled("hint", "cyan", text)

    def error(self, text: str, details: Sequence[str] = ()) -> None:
        """Tell what went wrong, with one line for each detail."""
        self._labelled("error", "red", text)
        for detail in details:
            self._stderr.print(visible(detail))

    def show_failure(self, error: NeuronLLMError) -> None:
        """Tell an expected failure: the message, every fault, and the way out."""
        self.error(error.message, error.faults if isinstance(error, ConfigError) else ())
        if error.hint:
            self._stderr.print()
            self.hint(error.hint)

    def status(self, text: str) -> Status:
        """Return a status line to enter and update; only for a terminal."""
        return self._stderr.status(Text(text))

    def _labelled(self, label: str, style: str, text: str) -> None:
        self._stderr.print(Text.assemble((f"{label}:", f"bold {style}"), f" {visible(text)}"))


def visible(text: str) -> str:
    """Write out what would steer a terminal: a field or a file may have any name."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def open_standard_streams() -> None:
    """Put the null device in place of what is closed: nothing to read, and nobody who reads.

    Descriptors 0 to 2 are taken then. A file that got one of them would receive what any library
    writes to its standard streams.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if not _is_open(descriptor):
            _open_null_as(descriptor)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _open_null_as(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null == descriptor:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, descriptor)
        os.close(null)
