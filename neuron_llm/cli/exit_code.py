"""What the process ends with."""

from __future__ import annotations

from enum import IntEnum


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
