"""Linear layers rewritten to operators: what is stacked, what is packed, and the same result."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn

from neuron_llm.backends.cpu.operator_linears import StackedWeight, rewrite_linears
from neuron_llm.backends.cpu.operators.packing import pack_weight


class Block(nn.Module):
    """Three layers over one input, two with a bias, one over their results; a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 6)
        self.q_proj = nn.Linear(6, 8)
        self.k_proj = nn.Linear(6, 4)
        self.v_proj = nn.Linear(6, 4, bias=False)
        self.down = nn.Linear(16, 6, bias=False)
        self.head = nn.Linear(6, 40, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        heads = torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], dim=-1)
        result: torch.Tensor = self.head(self.down(heads))
        return result


def rewritten(
    block: nn.Module, ids: torch.Tensor
) -> tuple[torch.fx.GraphModule, dict[str, StackedWeight]]:
    module = torch.export.export(block, (ids,), strict=False).module(check_guards=False)
    assert isinstance(module, torch.fx.GraphModule)
    return module, rewrite_linears(module)


def calls(module: torch.fx.GraphModule) -> list[str]:
    return [str(n.target) for n in module.graph.nodes if "neuron_llm" in str(n.target)]


def filled(stacked: StackedWeight, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    stack = torch.cat([weights[part] for part in stacked.parts])
    return pack_weight(stack) if stacked.layout == "packed" else stack


class PlainOperators(torch.fx.Interpreter):
    """Computes the operators from packed weights with plain torch, to check the rewriting alone."""

    def call_function(self, target, args, kwargs):  # type: ignore[no-untyped-def]
        if target is torch.ops.neuron_llm.linear_packed.default:
            x, packed, bias, out_features = args
            rows = packed.permute(0, 2, 1).reshape(-1, packed.shape[1])
            return F.linear(x, rows[:out_features], bias)
        if target is torch.ops.neuron_llm.linear.default:
            return F.linear(*args)
        return super().call_function(target, args, kwargs)


def test_layers_of_one_input_are_stacked_and_a_tied_weight_stays_as_it_is() -> None:
    block, ids = Block(), torch.tensor([1, 5, 7])
    module, stacked = rewritten(block, ids)
    assert calls(module) == [
        "neuron_llm.linear_packed.default",  # q and k, which have a bias
        "neuron_llm.linear_packed.default",  # v, which has none
        "neuron_llm.linear_packed.default",  # down
        "neuron_llm.linear.default",  # the head, tied to the embedding
    ]
    assert sorted((weight.name, weight.layout) for weight in stacked.values()) == [
        ("down.weight", "packed"),
        ("v_proj.weight", "packed"),
        ("{q_proj,k_proj}.bias", "plain"),
        ("{q_proj,k_proj}.weight", "packed"),
    ]


def test_a_rewritten_graph_computes_what_the_model_computes() -> None:
    block, ids = Block(), torch.tensor([1, 5, 7])
    module, stacked = rewritten(block, ids)
    weights = dict(block.named_parameters())
    for name, weight in stacked.items():
        setattr(module, name, filled(weight, weights))
    with torch.no_grad():
        (result,) = [PlainOperators(module).run(ids)]
        assert torch.allclose(result, block(ids), rtol=1e-6, atol=1e-6)


def test_a_weight_that_two_layers_read_is_not_packed() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layer(self.layer(x))
            return result

    module, stacked = rewritten(Twice(), torch.zeros(2, 4))
    assert calls(module) == ["neuron_llm.linear.default"] * 2 and stacked == {}


def test_a_stacked_weight_is_named_after_its_parts() -> None:
    parts = tuple(f"layers.3.self_attn.{name}_proj.weight" for name in "qkv")
    assert StackedWeight(parts, "packed").name == "layers.3.self_attn.{q_proj,k_proj,v_proj}.weight"
    assert StackedWeight(("norm.weight",), "plain").name == "norm.weight"
