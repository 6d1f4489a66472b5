"""Loading an artifact, with every step on record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.cli.terminal.console import Console
from neuron_llm.runtime.engine.engine import Engine, ignore_step
from neuron_llm.runtime.engine.loading import load_engine
from neuron_llm.runtime.engine.observer import EngineObserver
from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.run_log import RunHeader, RunLogWriter, last_run_path
from neuron_llm.scheduler.step_record import StepRecord


@contextmanager
def loaded_engine(
    directory: Path,
    artifact_id: str,
    console: Console,
    options: EngineOptions,
    on_step: Callable[[StepRecord], None] = ignore_step,
    observer: EngineObserver | None = None,
) -> Iterator[Engine]:
    """Load an artifact; its steps become those of its last run when the block ends well.

    Args:
        directory: of the artifact.
        artifact_id: of its manifest.
        console: where to tell.
        options: how to serve it.
        on_step: told about every step as well.
        observer: told what happens in the engine.

    Raises:
        ArtifactError: it cannot run here, there is not the memory for it, or its self-test fails.
    """
    started_at = datetime.now().astimezone().isoformat(timespec="seconds")
    log = RunLogWriter(last_run_path(artifact_id), RunHeader(artifact_id, started_at))

    def record(step: StepRecord) -> None:
        log.write(step)
        on_step(step)

    with log:
        started = time.perf_counter()
        with console.status("loading") if console.shows_progress else nullcontext():
            artifact = Artifact.open(directory)
            engine = load_engine(artifact, options, on_step=record, observer=observer)
        num_graphs = len(artifact.manifest.graphs)
        console.notice(f"loaded {num_graphs} graphs in {time.perf_counter() - started:.1f} s")
        if artifact.manifest.settings.samples_greedily:
            console.notice("its graphs take the most likely token: `temperature` is 0")
        yield engine
    if log.failure is not None:
        reason = log.failure.strerror or str(log.failure)
        console.warn(
            f"`bucket-report` will not show this run: its steps cannot be recorded in"
            f" `{last_run_path(artifact_id)}` ({reason.lower()})"
        )
