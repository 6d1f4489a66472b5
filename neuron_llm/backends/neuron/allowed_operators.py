"""Operators that a Neuron graph may consist of, and the few whose int64 is expected.

Source: what the graphs of Llama, Qwen3, Gemma 3 (sliding window) and gpt-oss (sinks, experts)
lowered to one static HLO module through torch-xla 2.9 and ran as on XLA's CPU device: parameter,
add, maximum, transpose, constant, reshape, broadcast, slice, gather, power, reduce, convert,
divide, compare, select, multiply, rsqrt, dot, concatenate, scatter, not, sine, negate, cosine,
subtract, exponential, logistic, tanh, and, iota, and sort for the choice of experts. Each operator
below lowers to those. `neuronx-cc list-operators --framework XLA` on a host with the compiler says
what its release takes.

A graph with any other operator is refused by its name. An operator is added here once it has been
lowered.
"""

from __future__ import annotations

_VIEWS = (
    "alias",
    "clone",
    "expand",
    "permute",
    "select.int",
    "slice.Tensor",
    "split_with_sizes",
    "unsqueeze",
    "view",
)
_ELEMENTWISE = (
    "add.Tensor",
    "bitwise_and.Tensor",
    "clamp",
    "cos",
    "div.Tensor",
    "eq.Tensor",
    "exp",
    "gelu",
    "ge.Tensor",
    "gt.Tensor",
    "le.Tensor",
    "lt.Tensor",
    "maximum",
    "mul.Tensor",
    "neg",
    "pow.Tensor_Scalar",
    "rsqrt",
    "sigmoid",
    "sin",
    "sub.Tensor",
    "tanh",
    "where.self",
    "_to_copy",
)
_REDUCTIONS = ("amax", "mean.dim", "sum.dim_IntList", "_softmax")
_PRODUCTS = ("addmm", "bmm", "mm")
_CONSTANTS = ("arange.start_step", "full", "full_like")
_INDEXED = ("embedding", "index_put", "index_select")
_JOINED = ("cat",)

# The choice of experts, and of the most likely token. Both give int64 positions, which are turned
# into int32 at once.
_POSITIONS = ("argmax", "topk")

ALLOWED_OPERATORS = frozenset(
    f"aten.{name}" if "." in name else f"aten.{name}.default"
    for name in (
        *_VIEWS,
        *_ELEMENTWISE,
        *_REDUCTIONS,
        *_PRODUCTS,
        *_CONSTANTS,
        *_INDEXED,
        *_JOINED,
        *_POSITIONS,
    )
)
INT64_RESULTS = frozenset({"aten.argmax.default", "aten.topk.default"})
"""Operators whose result is int64 whatever they are given."""
INT64_READERS = frozenset({"aten._to_copy.default"})
"""Operators that may read such a result: the conversion to int32."""
