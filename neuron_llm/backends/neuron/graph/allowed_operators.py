"""Operators that a Neuron graph may consist of, and the few whose int64 is expected.

Source: every family's graphs lower to one static HLO module each through torch-xla 2.9 and compute
what the model does on XLA's CPU device (`make test-xla`; `tests/xla/hlo_text.py` has the opcodes).
Each operator below was lowered so. `neuronx-cc list-operators --framework XLA` on a host with the
compiler says what its release takes.

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
    "clamp",
    "cos",
    "div.Tensor",
    "eq.Tensor",
    "exp",
    "gelu",
    "ge.Tensor",
    "gt.Tensor",
    "le.Tensor",
    "logical_and",
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
