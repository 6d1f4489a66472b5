"""From a graph's specification to an exported program, without a single weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from neuron_llm.backends.cpu.operator_attention import OPERATOR_ATTENTION_NAME
from neuron_llm.backends.cpu.operator_linears import StackedWeight, rewrite_linears
from neuron_llm.backends.graph.attention import ATTENTION_NAME
from neuron_llm.backends.graph.empty_model import build_model, empty_kv_cache
from neuron_llm.backends.graph.experts import EXPERTS_NAME
from neuron_llm.backends.graph.inputs import input_shapes, torch_dtype
from neuron_llm.backends.graph.module import GraphModule
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec

MODEL_PREFIX = "step.model."


@dataclass(frozen=True)
class CpuGraph:
    """An exported graph, and the constants that are none of the model's own weights.

    Attributes:
        exported: inputs are `logits` and those of `GraphModule.forward`; it returns nothing.
        stacked: by qualified name.
    """

    exported: torch.export.ExportedProgram
    stacked: Mapping[str, StackedWeight]


class _IntoBuffer(torch.nn.Module):
    """A graph that leaves its logits in memory that the caller keeps from call to call."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.step = GraphModule(model)

    def forward(self, logits: torch.Tensor, *inputs: Any) -> None:
        logits.copy_(self.step(*inputs))


def export_graph(spec: GraphSpec, *, custom_ops: bool) -> CpuGraph:
    """Trace one bucket's graph with static shapes.

    Args:
        spec: the graph.
        custom_ops: whether attention and linear layers become operators of the CPU library.
    """
    attention = OPERATOR_ATTENTION_NAME if custom_ops else ATTENTION_NAME
    model = build_model(spec, attention=attention, experts=EXPERTS_NAME)
    inputs = example_inputs(spec, model)
    with torch.no_grad():
        exported = torch.export.export(_IntoBuffer(model), inputs, strict=False)
        if not custom_ops:
            return CpuGraph(exported, {})
        unlifted = exported.module(check_guards=False)
        stacked = rewrite_linears(unlifted)
        return CpuGraph(torch.export.export(unlifted, inputs, strict=False), stacked)


def example_inputs(spec: GraphSpec, model: torch.nn.Module) -> tuple[Any, ...]:
    """Return a buffer for the logits, then inputs in the order of `GraphModule.forward`."""
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    indices = [torch.zeros(shape, dtype=torch.int32) for shape in shapes.values()]
    config: Any = model.config
    logits_shape = (*shapes["logits_indices"], config.vocab_size)
    logits = torch.empty(logits_shape, dtype=torch_dtype(spec.dtype))
    return (logits, *indices, empty_kv_cache(spec, model), empty_kv_cache(spec, model))


def model_constants(exported: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return every parameter, buffer and lifted tensor of an exported graph by qualified name."""
    return {**exported.state_dict, **exported.constants}


def constant_spec(
    name: str, qualified_name: str, tensor: torch.Tensor, stacked: Mapping[str, StackedWeight]
) -> ConstantSpec:
    """Describe a constant of a compiled graph by the weights that fill it."""
    weight = stacked.get(qualified_name, StackedWeight((qualified_name,), "plain"))
    parts = tuple(part.removeprefix(MODEL_PREFIX) for part in weight.parts)
    return ConstantSpec(
        name=name,
        weight=StackedWeight(parts, weight.layout).name,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        parts=parts if qualified_name in stacked else (),
        layout=weight.layout,
    )
