"""A model and its KV cache without a single weight, to trace graphs of.

The model is built from its configuration with uninitialised parameters: memory that is never
written costs nothing, and the graph is the same for every fine-tune of an architecture.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from neuron_llm.backends.graph.inputs import torch_dtype
from neuron_llm.backends.graph.rotary import fix_rotary_frequencies
from neuron_llm.backends.graph.spec import GraphSpec


def build_model(spec: GraphSpec, *, attention: str, experts: str) -> torch.nn.Module:
    """Return the Hugging Face model of a specification, its parameters uninitialised.

    Args:
        spec: what to build.
        attention: name of a registered attention.
        experts: name of a registered form of a mixture of experts.
    """
    architecture = dict(spec.architecture)
    # Token ids are no part of an architecture, and a family's own may lie outside the vocabulary.
    config = AutoConfig.for_model(architecture.pop("model_type"), **architecture, pad_token_id=None)
    with no_init_weights():
        model: torch.nn.Module = AutoModelForCausalLM.from_config(
            config,
            attn_implementation=attention,
            experts_implementation=experts,
            dtype=torch_dtype(spec.dtype),
        )
    model.tie_weights()  # type: ignore[operator]
    fix_rotary_frequencies(model, spec.max_model_len)
    return model.eval()


def empty_kv_cache(spec: GraphSpec, model: torch.nn.Module) -> list[torch.Tensor]:
    """Return one uninitialised cache per layer, K or V."""
    config: Any = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (spec.num_blocks, spec.block_size, config.num_key_value_heads, head_dim)
    dtype = torch_dtype(spec.dtype)
    return [torch.empty(shape, dtype=dtype) for _ in range(config.num_hidden_layers)]
