"""From a graph's specification to an exported program, without a single weight.

The model is built from its configuration with uninitialised parameters: memory that is never
written costs nothing, and the graph is the same for every fine-tune of an architecture.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from neuron_llm.backends.attention import ATTENTION_NAME
from neuron_llm.backends.graph_cache import content_key
from neuron_llm.backends.graph_module import GraphModule
from neuron_llm.backends.inputs import input_shapes, torch_dtype
from neuron_llm.backends.protocol import ConstantSpec, GraphSpec

MODEL_PREFIX = "model."


def build_model(spec: GraphSpec) -> torch.nn.Module:
    """Return the Hugging Face model of a specification, its parameters uninitialised."""
    architecture = dict(spec.architecture)
    config = AutoConfig.for_model(architecture.pop("model_type"), **architecture)
    with no_init_weights():
        model: torch.nn.Module = AutoModelForCausalLM.from_config(
            config, attn_implementation=ATTENTION_NAME, dtype=torch_dtype(spec.dtype)
        )
    return model.eval()


def export_graph(spec: GraphSpec) -> torch.export.ExportedProgram:
    """Trace one bucket's graph with static shapes."""
    model = build_model(spec)
    with torch.no_grad():
        return torch.export.export(GraphModule(model), example_inputs(spec, model), strict=False)


def example_inputs(spec: GraphSpec, model: torch.nn.Module) -> tuple[Any, ...]:
    """Return inputs of the bucket's shapes, in the order of `GraphModule.forward`."""
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    indices = [torch.zeros(shape, dtype=torch.int32) for shape in shapes.values()]
    return (*indices, empty_kv_cache(spec, model), empty_kv_cache(spec, model))


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


def constant_spec(name: str, qualified_name: str, tensor: torch.Tensor) -> ConstantSpec:
    """Describe a constant of a compiled graph by the weight that fills it."""
    return ConstantSpec(
        name=name,
        weight=qualified_name.removeprefix(MODEL_PREFIX),
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )
