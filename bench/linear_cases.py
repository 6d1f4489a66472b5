"""Linear layers of SmolLM2-135M and of a model of Llama-3.2-1B's sizes, for `operators.py`.

Layers of one shape are taken in turn, so that a weight has left the caches by the time that it is
read again, as in a model. Torch computes `F.linear` on the weight as it is, and oneDNN on a weight
reordered beforehand for the number of rows, whichever is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import torch
import torch.nn.functional as F
from operator_case import Case

from neuron_llm.backends.cpu.operators.packing import pack_weight

DTYPES = (torch.bfloat16, torch.float32)
NUM_ROWS = (1, 4, 8, 128, 512)
# Inputs and outputs: queries, keys and values; attention's output; gate and up; down.
PACKED_SHAPES = (
    *((576, 960), (576, 576), (576, 3072), (1536, 576)),
    *((2048, 2048), (2048, 16384), (8192, 2048)),
)
HEAD_SHAPE = (576, 49152)
# Twice the last-level cache of the machine that the figures in the documentation are from.
_MIN_WEIGHT_BYTES = 64 << 20


def in_turn(
    linear: Callable[..., torch.Tensor], weights: list[torch.Tensor], *rest: object
) -> Callable[[], torch.Tensor]:
    """Return a call of `linear` on the next weight; `rest` starts with the inputs."""
    inputs, *others = rest
    next_weight = cycle(weights)
    return lambda: linear(inputs, next(next_weight), *others)


def linear_case(num_rows: int, shape: tuple[int, int], dtype: torch.dtype) -> Case:
    """One layer without a bias; that of the tied head is not packed."""
    in_features, out_features = shape
    weight_bytes = in_features * out_features * dtype.itemsize
    num_layers = max(1, min(64, _MIN_WEIGHT_BYTES // weight_bytes + 1))
    inputs = torch.randn(num_rows, in_features).to(dtype)
    weights = [torch.randn(out_features, in_features).to(dtype) for _ in range(num_layers)]
    reordered = [torch.ops.mkldnn._reorder_linear_weight(w, num_rows) for w in weights]
    theirs = (
        in_turn(F.linear, weights, inputs),
        in_turn(torch.ops.mkldnn._linear_pointwise, reordered, inputs, None, "none", [], ""),
    )
    if shape == HEAD_SHAPE:
        ours = in_turn(torch.ops.neuron_llm.linear, weights, inputs, None)
    else:
        packed = [pack_weight(weight) for weight in weights]
        ours = in_turn(torch.ops.neuron_llm.linear_packed, packed, inputs, None, out_features)
    return Case(
        f"{num_rows} x {in_features} -> {out_features}",
        ours,
        theirs,
        num_bytes=weight_bytes,
        num_flops=2 * num_rows * in_features * out_features,
    )


def linear_cases() -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield the name and a maker of every linear case."""
    for dtype in DTYPES:
        for shape in (*PACKED_SHAPES, HEAD_SHAPE):
            kind = "head" if shape == HEAD_SHAPE else "packed"
            for num_rows in NUM_ROWS:
                yield (
                    f"linear {str(dtype).removeprefix('torch.')} {kind}",
                    lambda m=num_rows, s=shape, d=dtype: linear_case(m, s, d),
                )
