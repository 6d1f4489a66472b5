"""The file that the records of a batch job go to."""

from __future__ import annotations

import fcntl
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from neuron_llm.errors import NeuronLLMError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputFile(io.FileIO):
    """A file that takes each record whole or not at all, so that a full disk cuts none in two.

    Nothing waits in a buffer, which closing the file would try to write once more.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        """Write a record.

        Raises:
            NeuronLLMError: there is no room, or the file cannot be written for another reason.
            BrokenPipeError: whoever reads the pipe has gone.
        """
        rest = memoryview(data)
        size = os.fstat(self.fileno()).st_size
        try:
            while rest:
                rest = rest[super().write(rest) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            if os.path.isfile(self.fileno()):
                self.truncate(size)
            raise _unwritable(
                Path(str(self.name)), error, "make room, or write elsewhere"
            ) from error
        return memoryview(data).nbytes


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
        yield _stdout()
        return
    stream, is_new = _open(path, prompts, force=force)
    with stream:
        _lock(stream, path)
        try:
            yield stream
        except BaseException:
            if is_new and path.stat().st_size == 0:
                path.unlink()
            raise


def _stdout() -> BinaryIO:
    """Return what stdout writes to; in a notebook, or where it is redirected to a text, nothing.

    Raises:
        NeuronLLMError: it takes no bytes.
    """
    stream: BinaryIO | None = getattr(sys.stdout, "buffer", None)
    if stream is None:
        raise NeuronLLMError("stdout takes no records here", hint="give a file as `output`")
    return stream


def begin_output(stream: BinaryIO, *, num_kept_bytes: int = 0) -> None:
    """Drop what the file held before, save its beginning; a device or a pipe holds nothing."""
    if stream is not sys.stdout.buffer and os.path.isfile(stream.fileno()):
        stream.truncate(num_kept_bytes)


def _open(path: Path, prompts: Path, *, force: bool) -> tuple[OutputFile, bool]:
    """Return the file, and whether it is new: asking for that first would leave a moment between.

    Appending changes nothing yet in a file that exists.
    """
    try:
        try:
            return OutputFile(path, "x"), True
        except FileExistsError:
            _refuse_existing(path, prompts, force=force)
            return OutputFile(path, "a"), False
    except OSError as error:
        hint = "give a file in a directory that exists and can be written with `-o`"
        raise _unwritable(path, error, hint) from error


def _unwritable(path: Path, error: OSError, hint: str) -> NeuronLLMError:
    reason = (error.strerror or str(error)).lower()
    return NeuronLLMError(f"cannot write `{path}`: {reason}", hint=hint)


def _refuse_existing(path: Path, prompts: Path, *, force: bool) -> None:
    if path.is_file() and not force:
        raise NeuronLLMError(
            f"`{path}` exists already",
            hint="give another name with `-o`, replace it with `--force`, or finish its job with "
            "`--resume`",
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
