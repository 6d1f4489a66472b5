"""What a batch job tells whoever watches it. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.scheduler.step_record import StepRecord


@dataclass(frozen=True)
class BatchProgress:
    """How far a job is.

    Attributes:
        num_done: lines that have their record; those of an earlier run of the job do not count.
        num_failed: those with an error.
        num_output_tokens: tokens generated.
    """

    num_done: int
    num_failed: int
    num_output_tokens: int


class BatchObserver:
    """Is told how a job goes, when it happens; this one watches nothing."""

    def on_resumed(self, num_records: int) -> None:
        """A job goes on; so many lines have their record already."""

    def on_loading(self) -> None:
        """The files are open; loading the artifact begins."""

    def on_loaded(self, manifest: Manifest) -> None:
        """The artifact is loaded; running begins."""

    def on_step(self, step: StepRecord) -> None:
        """A step is over."""

    def on_progress(self, progress: BatchProgress) -> None:
        """A line has its record."""
