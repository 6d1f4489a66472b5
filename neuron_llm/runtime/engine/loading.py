"""The engine that an artifact's settings ask for."""

from __future__ import annotations

from collections.abc import Callable

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.runtime.engine.async_engine import AsyncEngine
from neuron_llm.runtime.engine.engine import Engine, ignore_step
from neuron_llm.runtime.engine.options import DEFAULT_OPTIONS, EngineOptions
from neuron_llm.runtime.watch.observer import EngineObserver
from neuron_llm.scheduler.step_record import StepRecord


def load_engine(
    artifact: Artifact,
    options: EngineOptions = DEFAULT_OPTIONS,
    *,
    on_step: Callable[[StepRecord], None] = ignore_step,
    observer: EngineObserver | None = None,
) -> Engine:
    """Load an artifact into an engine; with `async_scheduling`, into one with a step ahead.

    Args:
        artifact: what to load.
        options: how to serve it.
        on_step: told what each step cost.
        observer: told what happens.

    Raises:
        ArtifactError: it cannot run here, or its self-test fails.
    """
    engine_class = AsyncEngine if artifact.manifest.settings.async_scheduling else Engine
    return engine_class(artifact, options, on_step=on_step, observer=observer)
