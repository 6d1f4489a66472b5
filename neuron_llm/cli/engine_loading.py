"""What is shown while an artifact is loaded."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.cli.terminal.console import Console


class LoadingStatus:
    """Shows that an artifact is being loaded while it is entered.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("loading") if console.shows_progress else None
        self._started = time.perf_counter()

    def __enter__(self) -> Self:
        """Begin the line."""
        self._started = time.perf_counter()
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

    def show_loaded(self, manifest: Manifest) -> None:
        """Tell what was loaded, once it is and the line has gone."""
        seconds = time.perf_counter() - self._started
        self._console.notice(f"loaded {len(manifest.graphs)} graphs in {seconds:.1f} s")
        if manifest.settings.samples_greedily:
            self._console.notice("its graphs take the most likely token: `temperature` is 0")
