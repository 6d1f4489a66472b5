"""Paged attention through the CPU operator, in the place of the plain aten form."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface

import neuron_llm.backends.cpu.operators.registration  # noqa: F401  (defines the operator)
from neuron_llm.backends.graph.attention import AttentionContext

OPERATOR_ATTENTION_NAME = "neuron_llm_operator"


def operator_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    *,
    attention_context: AttentionContext,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_unused: Any,
) -> tuple[torch.Tensor, None]:
    """Write this step's keys and values and attend over the live context, in one operator.

    Arguments and result are those of `neuron_llm.backends.graph.attention.paged_attention`.
    """
    context = attention_context
    layer_idx = module.layer_idx
    assert isinstance(layer_idx, int)
    output = torch.ops.neuron_llm.paged_attention(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        context.key_caches[layer_idx],
        context.value_caches[layer_idx],
        context.positions,
        context.slot_mapping,
        context.block_tables,
        context.context_lens,
        scaling,
        softcap or 0.0,
        sliding_window or 0,
        s_aux,
    )
    return output[None], None


AttentionInterface.register(OPERATOR_ATTENTION_NAME, operator_attention)
