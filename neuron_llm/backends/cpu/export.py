"""From a graph's specification to an exported program, without a single weight.

The model is built from its configuration with uninitialised parameters: memory that is never
written costs nothing, and the graph is the same for every fine-tune of an architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from neuron_llm.backends.attention import ATTENTION_NAME
from neuron_llm.backends.cpu.operator_attention import OPERATOR_ATTENTION_NAME
from neuron_llm.backends.cpu.operator_linears import StackedWeight, rewrite_linears
from neuron_llm.backends.experts import EXPERTS_NAME
from neuron_llm.backends.graph_cache import content_key
from neuron_llm.backends.graph_module import GraphModule
from neuron_llm.backends.inputs import input_shapes, torch_dtype
from neuron_llm.backends.protocol import ConstantSpec, GraphSpec
from neuron_llm.backends.rotary import fix_rotary_frequencies

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


def build_model(spec: GraphSpec, attention: str = ATTENTION_NAME) -> torch.nn.Module:
    """Return the Hugging Face model of a specification, its parameters uninitialised.

    Args:
        spec: what to build.
        attention: name of a registered attention.
    """
    architecture = dict(spec.architecture)
    # Token ids are no part of an architecture, and a family's own may lie outside the vocabulary.
    config = AutoConfig.for_model(architecture.pop("model_type"), **architecture, pad_token_id=None)
    with no_init_weights():
        model: torch.nn.Module = AutoModelForCausalLM.from_config(
            config,
            attn_implementation=attention,
            experts_implementation=EXPERTS_NAME,
            dtype=torch_dtype(spec.dtype),
        )
    model.tie_weights()  # type: ignore[operator]
    fix_rotary_frequencies(model, spec.max_model_len)
    return model.eval()


def export_graph(spec: GraphSpec, *, custom_ops: bool) -> CpuGraph:
    """Trace one bucket's graph with static shapes.

    Args:
        spec: the graph.
        custom_ops: whether attention and linear layers become operators of the CPU library.
    """
    model = build_model(spec, OPERATOR_ATTENTION_NAME if custom_ops else ATTENTION_NAME)
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


def empty_kv_cache(spec: GraphSpec, model: torch.nn.Module) -> list[torch.Tensor]:
    """Return one uninitialised cache per layer, K or V."""
    config: Any = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (spec.num_blocks, spec.block_size, config.num_key_value_heads, head_dim)
    dtype = torch_dtype(spec.dtype)
    return [torch.empty(shape, dtype=dtype) for _ in range(config.num_hidden_layers)]


def exported_key(exported: torch.export.ExportedProgram, flags: Any) -> str:
    """Return the content address of an exported graph: its operators, shapes, names and flags."""
    nodes = [
        [node.op, str(node.target), str(node.args), str(node.kwargs), _meta(node.meta.get("val"))]
        for node in exported.graph.nodes
    ]
    return content_key([nodes, str(exported.graph_signature), flags])


def _meta(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.stride()} {value.dtype}"
    return str(type(value))


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
