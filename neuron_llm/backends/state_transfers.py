"""What moving the KV cache between graphs costs, where a backend must move it. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass
class StateTransfers:
    """What moving the KV cache between graphs has cost.

    Attributes:
        num_copies: times that a whole cache moved.
        num_bytes: bytes that moved.
    """

    num_copies: int = 0
    num_bytes: int = 0


@runtime_checkable
class MovesState(Protocol):
    """A session whose graphs have a KV cache each, so that it moves when another graph runs."""

    @property
    def transfers(self) -> StateTransfers:
        """What has moved so far."""
        ...
