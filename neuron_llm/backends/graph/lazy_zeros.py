"""Zeros that take no memory before they are written: `torch.zeros` writes every page."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch


def lazy_zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros over pages that the system hands out when they are first written."""
    num_elements = math.prod(shape)
    memory = mmap.mmap(-1, max(num_elements * dtype.itemsize, 1))
    return torch.frombuffer(memory, dtype=dtype, count=num_elements).view(*shape)
