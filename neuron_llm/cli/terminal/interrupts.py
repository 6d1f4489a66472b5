"""Signals that end a command: Ctrl-C as a wish, SIGTERM as an exit that cleans up."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from neuron_llm.cli.terminal.console import ExitCode


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM leave the block by `SystemExit`, so that child processes and files go too."""

    def leave(signum: int, frame: FrameType | None) -> None:
        sys.exit(ExitCode.TERMINATED)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def interrupt_requested() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed since the block began.

    The first press does nothing else, so that no step is cut in half; the second raises
    `KeyboardInterrupt` at once.
    """
    is_requested = False

    def remember(signum: int, frame: FrameType | None) -> None:
        nonlocal is_requested
        if is_requested:
            signal.default_int_handler(signum, frame)
        is_requested = True

    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: is_requested
    finally:
        signal.signal(signal.SIGINT, previous)
