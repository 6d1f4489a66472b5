"""Graphs are static before a compiler sees them; whatever is not is refused by its name.

One of every kind is exported here, every family in `tests/prove/test_families.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from static_families import DECODE, KINDS, exported_graph
from tiny_families import PREFILL

from neuron_llm.backends.neuron.graph.allowed_operators import ALLOWED_OPERATORS
from neuron_llm.backends.neuron.graph.export import export_function
from neuron_llm.backends.neuron.graph.static_graph import operators, require_static, static_faults
from neuron_llm.errors import CompileError
from neuron_llm.scheduler.buckets import Bucket


@pytest.mark.parametrize(
    ("family", "bucket"), KINDS, ids=[f"{family}-{bucket.name}" for family, bucket in KINDS]
)
def test_every_kind_of_graph_is_static(family: str, bucket: Bucket) -> None:
    assert static_faults(exported_graph(family, bucket)) == []


def test_no_operator_is_allowed_that_no_family_needs() -> None:
    # Between them these two have every operator.
    needed = [("gemma2", PREFILL), ("gpt-oss", DECODE)]
    assert set().union(*(operators(exported_graph(*kind)) for kind in needed)) == ALLOWED_OPERATORS


class Function(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, tokens: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        return self.function(tokens, cache)


FORBIDDEN: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], str]] = {
    "an operator that depends on data": (
        lambda tokens, cache: tokens.nonzero(),
        "it contains the operator `aten.nonzero.default`",
    ),
    "an operator that was never lowered": (
        lambda tokens, cache: cache.cumsum(0),
        "it contains the operator `aten.cumsum.default`",
    ),
    "an int64 index": (
        lambda tokens, cache: cache.index_select(0, tokens.long()),
        "`aten._to_copy.default` is int64",
    ),
    "int64 positions that are not converted": (
        lambda tokens, cache: cache.argmax(-1),
        "`aten.argmax.default` is int64",
    ),
    "float64": (
        lambda tokens, cache: cache.double() * 2,
        "`aten._to_copy.default` is torch.float64",
    ),
    "writing in place": (
        lambda tokens, cache: cache.index_put_((tokens,), cache[:3]),
        "`cache` is written in place",
    ),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_is_not_static_is_refused_by_name(name: str) -> None:
    function, expected = FORBIDDEN[name]
    inputs = (torch.zeros(3, dtype=torch.int32), torch.zeros(8, 4))
    program = export_function(Function(function), inputs)
    with pytest.raises(CompileError) as caught:
        require_static(program, "prefill_t8")
    assert expected in caught.value.message
    assert caught.value.message.startswith("graph `prefill_t8` cannot be compiled")


def test_a_dynamic_shape_is_refused() -> None:
    inputs = (torch.zeros(3, dtype=torch.int32), torch.zeros(8, 4))
    dynamic = torch.export.export(
        Function(lambda tokens, cache: cache * 2),
        inputs,
        dynamic_shapes={"tokens": None, "cache": {0: torch.export.Dim("rows")}},
        strict=False,
    )
    assert any("a shape that is not static" in fault for fault in static_faults(dynamic))
