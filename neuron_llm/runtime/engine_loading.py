"""The engine that an artifact's settings ask for."""

from __future__ import annotations

from collections.abc import Callable

from neuron_llm.runtime.artifact import Artifact
from neuron_llm.runtime.async_engine import AsyncEngine
from neuron_llm.runtime.engine import Engine, ignore_step
from neuron_llm.runtime.observer import EngineObserver
from neuron_llm.scheduler.step_record import StepRecord


def load_engine(
    artifact: Artifact,
    *,
    on_step: Callable[[StepRecord], None] = ignore_step,
    observer: EngineObserver | None = None,
) -> Engine:
    """Load an artifact into an engine; with `async_scheduling`, into one with a step ahead.

    Args:
        artifact: what to load.
        on_step: told what each step cost.
        observer: told what happens.
    """
    engine_class = AsyncEngine if artifact.manifest.settings.async_scheduling else Engine
    return engine_class(artifact, on_step=on_step, observer=observer)
