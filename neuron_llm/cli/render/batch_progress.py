"""The status line of a batch job."""

from __future__ import annotations

import time

from neuron_llm.cli.render.table import counted
from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.status_line import StatusLine
from neuron_llm.runtime.batch.observer import BatchProgress


class BatchStatus(StatusLine):
    """Shows how far a job is while it is entered.

    Args:
        console: where to.
        is_shown: False where the records themselves appear on the terminal.

    Attributes:
        num_done: lines that have their record.
    """

    def __init__(self, console: Console, *, is_shown: bool) -> None:
        super().__init__(console, "running", is_shown=is_shown)
        self._started = time.perf_counter()
        self.num_done = 0

    def show(self, progress: BatchProgress) -> None:
        """Take the newest state."""
        self.num_done = progress.num_done
        self.say(render_progress(progress, time.perf_counter() - self._started))


def render_progress(progress: BatchProgress, seconds: float) -> str:
    """Return the status line, `12 lines done, 1 failed, 345 tokens, 41.6 tokens/s`."""
    failed = f", {progress.num_failed} failed" if progress.num_failed else ""
    rate = progress.num_output_tokens / seconds if seconds > 0 else 0.0
    return (
        f"{counted(progress.num_done, 'line')} done{failed},"
        f" {counted(progress.num_output_tokens, 'token')}, {rate:.1f} tokens/s"
    )
