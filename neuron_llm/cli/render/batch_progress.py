"""The status line of a batch job."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from neuron_llm.cli.render.table import counted
from neuron_llm.cli.terminal.console import Console
from neuron_llm.runtime.batch.observer import BatchProgress


class BatchStatus:
    """Shows how far a job is while it is entered.

    Args:
        console: where to.
        is_shown: False where the records themselves appear on the terminal.

    Attributes:
        num_done: lines that have their record.
    """

    def __init__(self, console: Console, *, is_shown: bool) -> None:
        self._status = console.status("running") if is_shown and console.shows_progress else None
        self._started = time.perf_counter()
        self.num_done = 0

    def __enter__(self) -> Self:
        """Begin the line."""
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the line."""
        if self._status is not None:
            self._status.stop()

    def show(self, progress: BatchProgress) -> None:
        """Take the newest state."""
        self.num_done = progress.num_done
        if self._status is not None:
            seconds = time.perf_counter() - self._started
            self._status.update(render_progress(progress, seconds))


def render_progress(progress: BatchProgress, seconds: float) -> str:
    """Return the status line, `12 lines done, 1 failed, 345 tokens, 41.6 tokens/s`."""
    failed = f", {progress.num_failed} failed" if progress.num_failed else ""
    rate = progress.num_output_tokens / seconds if seconds > 0 else 0.0
    return (
        f"{counted(progress.num_done, 'line')} done{failed},"
        f" {counted(progress.num_output_tokens, 'token')}, {rate:.1f} tokens/s"
    )
