"""What `operators.py` measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Case:
    """One computation: ours, and torch's ways to do the same.

    Attributes:
        name: starts with what is computed.
        ours: computes it with the operator library.
        theirs: the same by torch.
        num_bytes: memory that it has to read.
        num_flops: arithmetic that it has to do.
    """

    name: str
    ours: Callable[[], torch.Tensor]
    theirs: tuple[Callable[[], torch.Tensor], ...]
    num_bytes: int
    num_flops: int
