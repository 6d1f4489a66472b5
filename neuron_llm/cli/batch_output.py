"""The file that the records of a batch job go to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
            written.
    """
    if path is None:
        yield sys.stdout.buffer
        return
    is_new = not path.exists()
    if path.is_file() and not force:
        raise NeuronLLMError(
            f"`{path}` exists already",
            hint="give another name with `-o`, or replace it with `--force`",
        )
    if not is_new and prompts.exists() and os.path.samefile(path, prompts):
        raise NeuronLLMError(
            f"`{path}` is the prompts file itself", hint="give another name with `-o`"
        )
    try:
        # Appending changes nothing yet.
        stream = path.open("ab")
    except OSError as error:
        raise NeuronLLMError(
            f"cannot write `{path}`: {(error.strerror or str(error)).lower()}",
            hint="give a file in a directory that exists and can be written with `-o`",
        ) from error
    try:
        with stream:
            yield stream
    except BaseException:
        if is_new and path.stat().st_size == 0:
            path.unlink()
        raise


def begin_output(stream: BinaryIO) -> None:
    """Drop what the file held before; a device or a pipe holds nothing."""
    if stream is not sys.stdout.buffer and os.path.isfile(stream.fileno()):
        stream.truncate(0)
