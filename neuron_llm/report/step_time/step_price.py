"""What a prefill step costs: a fixed price, and a price for each token of its bucket.

Knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_STEP_TOKENS = 230
"""How many tokens a step costs by itself, before it computes any.

Each step reads all weights from memory once. With weights of two bytes that takes as long as to
compute as many tokens as the chip does operations while it reads a byte: on Trainium2, with 667e12
operations and 2.9e12 bytes a second, that is 230. Measured times, if any, are better.
"""


@dataclass(frozen=True)
class StepPrice:
    """The price of a step as a line over the size of its bucket.

    Attributes:
        step: of a step, whatever its size.
        token: of a token of the bucket, real or padding.
        unit: what both are counted in, `tokens` or `ms`.
    """

    step: float
    token: float
    unit: str

    def of(self, num_steps: int, num_computed_tokens: int) -> float:
        """Return the price of steps whose buckets have so many tokens together."""
        return self.step * num_steps + self.token * num_computed_tokens

    def to_json(self) -> dict[str, Any]:
        """Return the prices as JSON keys and values."""
        return {"step": self.step, "token": self.token, "unit": self.unit}


DEFAULT_STEP_PRICE = StepPrice(step=DEFAULT_STEP_TOKENS, token=1, unit="tokens")
"""What is assumed where nothing was measured."""


def fit_step_price(mean_ms: Mapping[int, float]) -> StepPrice | None:
    """Return the line closest to measured times, by least squares.

    32 tokens in 10 ms and 64 in 14 ms give 6 ms a step and 0.125 ms a token. Where the line would
    begin below zero, it is the closest of those that begin at zero.

    Args:
        mean_ms: milliseconds of a step by the size of its bucket in tokens.

    Returns:
        The price in ms; None with fewer than two sizes, or if larger ones took no longer.
    """
    if len(mean_ms) < 2:
        return None
    mean_size, mean = sum(mean_ms) / len(mean_ms), sum(mean_ms.values()) / len(mean_ms)
    covariance = sum((size - mean_size) * (ms - mean) for size, ms in mean_ms.items())
    token = covariance / sum((size - mean_size) ** 2 for size in mean_ms)
    if token <= 0:
        return None
    step = mean - token * mean_size
    if step < 0:
        step = 0.0
        token = sum(size * ms for size, ms in mean_ms.items()) / sum(s * s for s in mean_ms)
    return StepPrice(step=step, token=token, unit="ms")
