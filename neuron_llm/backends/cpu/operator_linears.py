"""Linear layers of an exported graph, rewritten to the operators of the CPU library.

Layers that read one input become one operator over their stacked weights: q, k and v; gate and up.
A weight that something else reads too, as a tied embedding is, stays as it is stored; every other
one is packed, once for all graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

import neuron_llm.backends.cpu.operators.registration  # noqa: F401  (defines the operators)
from neuron_llm.backends.cpu.operators.packing import packed_shape
from neuron_llm.backends.graph.spec import WeightLayout

_LINEAR = torch.ops.aten.linear.default


@dataclass(frozen=True)
class StackedWeight:
    """A constant of a rewritten graph that is made of weights of the model.

    Attributes:
        parts: their qualified names, stacked along the output dimension in this order.
        layout: how the stack is stored.
    """

    parts: tuple[str, ...]
    layout: WeightLayout

    @property
    def name(self) -> str:
        """A name for it: `layers.0.self_attn.{q_proj,k_proj,v_proj}.weight`."""
        columns = zip(*(part.split(".") for part in self.parts), strict=True)
        return ".".join(
            column[0] if len(set(column)) == 1 else f"{{{','.join(column)}}}" for column in columns
        )


def rewrite_linears(module: GraphModule) -> dict[str, StackedWeight]:
    """Replace every linear layer by an operator of the library.

    Args:
        module: an unlifted exported graph, changed in place; new constants are uninitialised.

    Returns:
        The new constants by qualified name.
    """
    groups: dict[tuple[Node, bool], list[Node]] = {}
    for node in module.graph.find_nodes(op="call_function", target=_LINEAR):
        source, weight = node.args[:2]
        if not (isinstance(weight, Node) and weight.op == "get_attr"):
            continue  # A slice of a larger weight, as some experts have: it stays aten.
        assert isinstance(source, Node)
        if len(weight.users) > 1:
            _replace(module, node, torch.ops.neuron_llm.linear.default, (source, weight))
        else:
            groups.setdefault((source, _bias(node) is not None), []).append(node)
    stacked: dict[str, StackedWeight] = {}
    for linears in groups.values():
        stacked.update(_pack(module, linears, f"packed_{len(stacked)}"))
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return stacked


def _bias(linear: Node) -> Node | None:
    bias = linear.args[2] if len(linear.args) > 2 else linear.kwargs.get("bias")
    assert bias is None or isinstance(bias, Node)
    return bias


def _replace(module: GraphModule, linear: Node, operator: Any, args: tuple[Any, ...]) -> None:
    with module.graph.inserting_before(linear):
        replacement = module.graph.call_function(operator, (*args, _bias(linear)))
    linear.replace_all_uses_with(replacement)
    module.graph.erase_node(linear)


def _pack(module: GraphModule, linears: Sequence[Node], name: str) -> dict[str, StackedWeight]:
    """Replace linears of one input by one operator, and return its constants."""
    graph = module.graph
    names = [str(linear.args[1].target) for linear in linears]  # type: ignore[union-attr]
    weights = [module.get_parameter(weight) for weight in names]
    sizes = [weight.shape[0] for weight in weights]
    dtype = weights[0].dtype
    stacked = {name: StackedWeight(tuple(names), "packed")}
    module.register_buffer(
        name, torch.empty(packed_shape(sum(sizes), weights[0].shape[1], dtype), dtype=dtype)
    )
    biases = [bias for linear in linears if (bias := _bias(linear)) is not None]
    if len(biases) > 1:
        stacked[f"{name}_bias"] = StackedWeight(tuple(str(b.target) for b in biases), "plain")
        module.register_buffer(f"{name}_bias", torch.empty(sum(sizes), dtype=dtype))
    with graph.inserting_before(linears[0]):
        weight = graph.get_attr(name)
        bias = graph.get_attr(f"{name}_bias") if len(biases) > 1 else next(iter(biases), None)
        output = graph.call_function(
            torch.ops.neuron_llm.linear_packed.default,
            (linears[0].args[0], weight, bias, sum(sizes)),
        )
        start = 0
        for linear, size in zip(linears, sizes, strict=True):
            columns = (output, -1, start, start + size)
            part = graph.call_function(torch.ops.aten.slice.Tensor, columns)
            linear.replace_all_uses_with(part if len(linears) > 1 else output)
            start += size
    for linear in linears:
        graph.erase_node(linear)
    return stacked
