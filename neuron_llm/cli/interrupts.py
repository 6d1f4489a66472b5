"""Ctrl-C as a wish rather than an exception."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
