"""A batch job on the command line: how far it is, and what it came to."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.cli.engine_loading import LoadingStatus
from neuron_llm.cli.render.batch_progress import BatchStatus
from neuron_llm.cli.render.batch_summary import render_summary
from neuron_llm.cli.render.table import counted
from neuron_llm.cli.terminal.console import Console, ExitCode
from neuron_llm.report.run.padding import PaddingAccount
from neuron_llm.report.run.padding_price import PaddingPrice
from neuron_llm.runtime.batch.job import BatchJob
from neuron_llm.runtime.batch.job_run import run_batch_job
from neuron_llm.runtime.batch.observer import BatchObserver, BatchProgress
from neuron_llm.scheduler.step_record import StepRecord


def run_batch_command(
    job: BatchJob, manifest: Manifest, console: Console, *, json_output: bool
) -> ExitCode:
    """Run a job and tell what it came to.

    Args:
        job: what to run.
        manifest: of its artifact.
        console: where to tell.
        json_output: write the summary as a JSON document on stdout.

    Raises:
        NeuronLLMError: see `run_batch_job`.
    """
    with _JobDisplay(job, manifest, console) as display:
        try:
            result = run_batch_job(job, display)
        except KeyboardInterrupt:
            display.show_interrupted()
            raise
    for warning in result.warnings:
        console.warn(warning)
    metrics = result.to_json()
    if json_output:
        console.result(json.dumps(_summary_json(job, manifest, metrics, display)))
    else:
        console.notice(render_summary(metrics, display.account, display.price))
    if result.earlier.num_failed:
        console.warn(
            f"errors in {counted(result.earlier.num_failed, 'line')} that were done already"
        )
    return ExitCode.SOME_LINES_FAILED if result.num_failed else ExitCode.OK


class _JobDisplay(BatchObserver):
    """Shows what a job tells while it is entered, and counts what its steps pad.

    Attributes:
        account: of its steps.
        price: of running only the largest graphs; None if the others run too.
    """

    def __init__(self, job: BatchJob, manifest: Manifest, console: Console) -> None:
        self.account = PaddingAccount(manifest.buckets.all)
        is_reproducible = job.engine_options.reproducible
        self.price = PaddingPrice(manifest.buckets) if is_reproducible else None
        self._job = job
        self._console = console
        self._shown = ExitStack()
        self._loading: LoadingStatus | None = None
        self._running: BatchStatus | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._shown.close()

    def on_resumed(self, num_records: int) -> None:
        self._console.notice(f"{counted(num_records, 'line')} done already")

    def on_loading(self) -> None:
        self._loading = self._shown.enter_context(LoadingStatus(self._console))

    def on_loaded(self, manifest: Manifest) -> None:
        self._shown.close()
        assert self._loading is not None, "loading ends after it began"
        self._loading.show_loaded(manifest)
        is_on_terminal = self._job.output is None and sys.stdout.isatty()
        self._running = BatchStatus(self._console, is_shown=not is_on_terminal)
        self._shown.enter_context(self._running)

    def on_step(self, step: StepRecord) -> None:
        self.account.add(step)
        if self.price is not None:
            self.price.add(step)

    def on_progress(self, progress: BatchProgress) -> None:
        assert self._running is not None, "lines are done after loading"
        self._running.show(progress)

    def show_interrupted(self) -> None:
        if self._running is None:
            return
        way_on = "; the same command with `--resume` goes on" if self._job.can_go_on else ""
        self._console.notice(f"interrupted: {counted(self._running.num_done, 'line')} done{way_on}")


def _summary_json(
    job: BatchJob, manifest: Manifest, metrics: dict[str, Any], display: _JobDisplay
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "artifact": str(job.artifact),
        "artifact_id": manifest.artifact_id,
        "backend": manifest.backend,
        "prompts": str(job.prompts),
        "output": str(job.output),
        **metrics,
        "padding": display.account.to_json(),
        "reproducible": None if display.price is None else display.price.to_json(),
    }
