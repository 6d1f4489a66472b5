"""The order in which packed weights lie in memory.

Weights of 32 outputs stand side by side, input by input, so that one pass over memory feeds a whole
panel of outputs. Of 16-bit weights two neighbouring inputs stay together: the CPU multiplies pairs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from neuron_llm.scheduler.block_pool import ceil_div

PANEL = 32
"""Outputs per panel; the last panel is filled up with zeros."""


def packed_shape(out_features: int, in_features: int, dtype: torch.dtype) -> tuple[int, ...]:
    """Return the shape of a packed weight: `[panels, inputs, 32]`, or pairs in 16 bits."""
    panels = ceil_div(out_features, PANEL)
    if dtype == torch.float32:
        return (panels, in_features, PANEL)
    return (panels, ceil_div(in_features, 2), PANEL, 2)


def pack_weight(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight in the order of `packed_shape`.

    Args:
        weight: `[out_features, in_features]` float32, bfloat16 or float16.
    """
    out_features, in_features = weight.shape
    shape = packed_shape(out_features, in_features, weight.dtype)
    group = 1 if weight.dtype == torch.float32 else 2
    padded = F.pad(weight, (0, -in_features % group, 0, -out_features % PANEL))
    panels = padded.reshape(shape[0], PANEL, -1, group).permute(0, 2, 1, 3)
    return panels.reshape(shape).contiguous()
