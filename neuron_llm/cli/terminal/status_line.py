"""A line that is written over and over; nothing where nobody would see it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.text import Text

from neuron_llm.cli.terminal.console import Console, visible


class StatusLine:
    """Stands on the terminal while it is entered.

    Args:
        console: where to.
        text: what it says at first.
        is_shown: False where something else appears on the terminal.
    """

    def __init__(self, console: Console, text: str, *, is_shown: bool = True) -> None:
        self._status = console.status(text) if is_shown and console.shows_progress else None

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

    def say(self, text: str) -> None:
        """Replace what it says; a name in it is no markup and steers no terminal."""
        if self._status is not None:
            self._status.update(Text(visible(text)))
