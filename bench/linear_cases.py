"""Linear layers of SmolLM2-135M and of a model of Llama-3.2-1B's sizes, for `operators.py`.

Layers of one shape are taken in turn, so that a weight has left the caches by the time that it is
read again, as in a model. Ours are called as a compiled graph calls them, by their C interface, and
not through Python's dispatch, which takes some 20 us. Torch computes `F.linear` on the weight as it
is, and oneDNN on a weight reordered beforehand for the number of rows, whichever is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import torch
import torch.nn.functional as F
from operator_case import Case

from neuron_llm.backends.cpu.operators.interface import LinearStruct, tensor_struct
from neuron_llm.backends.cpu.operators.packing import pack_weight
from neuron_llm.backends.cpu.operators.registration import LIBRARY_IN_USE

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


def our_call(
    operator: str, inputs: torch.Tensor, weights: list[torch.Tensor], out_features: int
) -> Callable[[], torch.Tensor]:
    """Return a call of our operator on the next weight, which writes to the same output."""
    output = inputs.new_empty(len(inputs), out_features)
    layers = [
        LinearStruct(
            input=tensor_struct(inputs),
            weight=tensor_struct(weight),
            output=tensor_struct(output),
        )
        for weight in weights
    ]
    next_layer = zip(cycle(layers), cycle(weights))  # the weights stay alive with their layers

    def call() -> torch.Tensor:
        layer, _ = next(next_layer)
        LIBRARY_IN_USE.library.call(operator, layer)
        return output

    return call


def linear_case(num_rows: int, shape: tuple[int, int], dtype: torch.dtype) -> Case:
    """One layer without a bias; that of the tied head is not packed."""
    in_features, out_features = shape
    weight_bytes = in_features * out_features * dtype.itemsize
    num_layers = max(1, min(64, _MIN_WEIGHT_BYTES // weight_bytes + 1))
    inputs = torch.randn(num_rows, in_features).to(dtype)
    weights = [torch.randn(out_features, in_features).to(dtype) for _ in range(num_layers)]
    reordered = [torch.ops.mkldnn._reorder_linear_weight(w, num_rows) for w in weights]
    next_weight, next_reordered = cycle(weights), cycle(reordered)
    reordered_linear = torch.ops.mkldnn._linear_pointwise
    if shape == HEAD_SHAPE:
        ours = our_call("linear", inputs, weights, out_features)
    else:
        packed = [pack_weight(weight) for weight in weights]
        ours = our_call("linear_packed", inputs, packed, out_features)
    return Case(
        f"{num_rows} x {in_features} -> {out_features}",
        ours,
        (
            lambda: F.linear(inputs, next(next_weight)),
            lambda: reordered_linear(inputs, next(next_reordered), None, "none", [], ""),
        ),
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
