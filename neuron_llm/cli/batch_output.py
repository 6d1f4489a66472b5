"""The file that the records of a batch job go to."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from neuron_llm.errors import NeuronLLMError


@contextmanager
def open_output(path: Path | None, *, prompts: Path, force: bool) -> Iterator[BinaryIO]:
    """Open the output before anything slow is done; None is stdout.

    A file that did not exist is removed again if the block fails before it writes anything. One
    that did keeps its content until `begin_output`.

    Raises:
        NeuronLLMError: it exists and `force` is off, it is the prompts file, or it cannot be
            written, or another run is writing it.
    """
    if path is None:
        yield sys.stdout.buffer
        return
    stream, is_new = _open(path, prompts, force=force)
    with stream:
        _lock(stream, path)
        try:
            yield stream
        except BaseException:
            with suppress(OSError):
                stream.flush()
            if is_new and path.stat().st_size == 0:
                path.unlink()
            raise


def begin_output(stream: BinaryIO) -> None:
    """Drop what the file held before; a device or a pipe holds nothing."""
    if stream is not sys.stdout.buffer and os.path.isfile(stream.fileno()):
        stream.truncate(0)


def _open(path: Path, prompts: Path, *, force: bool) -> tuple[BinaryIO, bool]:
    """Return the file, and whether it is new: asking for that first would leave a moment between.

    Appending changes nothing yet in a file that exists.
    """
    try:
        try:
            return path.open("xb"), True
        except FileExistsError:
            _refuse_existing(path, prompts, force=force)
            return path.open("ab"), False
    except OSError as error:
        raise NeuronLLMError(
            f"cannot write `{path}`: {(error.strerror or str(error)).lower()}",
            hint="give a file in a directory that exists and can be written with `-o`",
        ) from error


def _refuse_existing(path: Path, prompts: Path, *, force: bool) -> None:
    if path.is_file() and not force:
        raise NeuronLLMError(
            f"`{path}` exists already",
            hint="give another name with `-o`, or replace it with `--force`",
        )
    if path.exists() and prompts.exists() and os.path.samefile(path, prompts):
        raise NeuronLLMError(
            f"`{path}` is the prompts file itself", hint="give another name with `-o`"
        )


def _lock(stream: BinaryIO, path: Path) -> None:
    """Keep other runs out of a file until it is closed; a device or a pipe may have many writers.

    Raises:
        NeuronLLMError: another run is in it.
    """
    if not os.path.isfile(stream.fileno()):
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise NeuronLLMError(
            f"another run is writing `{path}`", hint="give another name with `-o`, or wait for it"
        ) from error
