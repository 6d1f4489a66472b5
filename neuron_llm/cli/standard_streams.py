"""The three standard streams, of which a shell may have closed any."""

from __future__ import annotations

import os
import sys


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
