"""What is shown while an artifact is loaded."""

from __future__ import annotations

import time

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.cli.terminal.console import Console
from neuron_llm.cli.terminal.status_line import StatusLine


class LoadingStatus(StatusLine):
    """Shows that an artifact is being loaded while it is entered.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console, "loading")
        self._console = console
        self._started = time.perf_counter()

    def show_loaded(self, manifest: Manifest) -> None:
        """Tell what was loaded, once it is and the line has gone."""
        seconds = time.perf_counter() - self._started
        self._console.notice(f"loaded {len(manifest.graphs)} graphs in {seconds:.1f} s")
        if manifest.settings.samples_greedily:
            self._console.notice("its graphs take the most likely token: `temperature` is 0")
