"""How far what a graph gives for a row is from what the model says: for logits, and for tokens."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch


class RowError(NamedTuple):
    """What comparing a row found.

    Attributes:
        error: in units of the spread of the model's logits; NaN for what cannot be compared.
        is_equal: whether the most likely token is the model's.
        what: says the error in a sentence.
    """

    error: float
    is_equal: bool
    what: str


class RowCheck(Protocol):
    """Compares a row that a graph gave with the model's logits `[vocab_size]` float32."""

    def __call__(self, given: torch.Tensor, expected: torch.Tensor) -> RowError:
        """Return how far apart they are."""


def compare_logits(given: torch.Tensor, expected: torch.Tensor) -> RowError:
    """Return the root mean square of the differences of a row of logits.

    Args:
        given: `[vocab_size]`, any float dtype.
        expected: `[vocab_size]` float32.
    """
    given = given.float()
    error = (rms(given - expected) / expected.std()).item()
    is_equal = bool(given.argmax() == expected.argmax())
    return RowError(error, is_equal, f"logits differ by {error:.3g} spreads")


def compare_token(given: torch.Tensor, expected: torch.Tensor) -> RowError:
    """Return by how much the model's logit of the chosen token is below its best.

    Args:
        given: a token, any integer dtype.
        expected: `[vocab_size]` float32.
    """
    token_id = int(given)
    if not 0 <= token_id < len(expected):
        what = f"token {token_id} is outside the vocabulary (0 to {len(expected) - 1})"
        return RowError(torch.nan, False, what)
    error = ((expected.max() - expected[token_id]) / expected.std()).item()
    what = f"the logit of token {token_id} is {error:.3g} spreads below the most likely one's"
    return RowError(error, token_id == int(expected.argmax()), what)


def rms(tensor: torch.Tensor) -> torch.Tensor:
    """Return the root of the mean square, which no single number decides."""
    return tensor.square().mean().sqrt()
