"""What an engine tells whoever watches it."""

from __future__ import annotations

from typing import Protocol

from neuron_llm.runtime.watch.step_trace import StepTrace


class EngineObserver(Protocol):
    """Is told what happens, when it happens; times are seconds on the engine's clock."""

    def on_request_added(self, request_id: str, at: float) -> None:
        """A request was queued."""

    def on_first_token(self, request_id: str, at: float) -> None:
        """A request has its first output token."""

    def on_request_ended(self, request_id: str, at: float, finish_reason: str) -> None:
        """A request is over."""

    def on_step(self, trace: StepTrace) -> None:
        """A step is over."""


class NoObserver:
    """Watches nothing."""

    def on_request_added(self, request_id: str, at: float) -> None:
        """See `EngineObserver`."""

    def on_first_token(self, request_id: str, at: float) -> None:
        """See `EngineObserver`."""

    def on_request_ended(self, request_id: str, at: float, finish_reason: str) -> None:
        """See `EngineObserver`."""

    def on_step(self, trace: StepTrace) -> None:
        """See `EngineObserver`."""
