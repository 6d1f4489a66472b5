"""A mixture of experts without data-dependent shapes, through transformers' experts interface.

Whichever experts the router picks, the same operators run: over copies of the picked experts'
weights where few are picked, over all experts where most are. A token's result is its own.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.integrations.moe import ExpertsInterface, batched_mm_experts_forward

EXPERTS_NAME = "neuron_llm_static"
"""Whichever form costs least."""
DENSE_EXPERTS_NAME = "neuron_llm_dense"
"""Every expert on every token: it gathers no weights, and in int32 it lowers to XLA."""

# A copied weight is read, written and read again.
_COST_OF_COPYING = 3


def static_experts(
    experts: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Return the weighted sum of each token's experts.

    Args:
        experts: the module that holds the weights, as `use_experts_implementation` made it.
        hidden_states: `[num_tokens, hidden_size]`.
        top_k_index: `[num_tokens, num_experts_per_tok]` int64.
        top_k_weights: the same shape.

    Returns:
        `[num_tokens, hidden_size]`.
    """
    if _COST_OF_COPYING * top_k_index.numel() <= experts.num_experts:
        picked: torch.Tensor = batched_mm_experts_forward(
            experts, hidden_states, top_k_index, top_k_weights
        )
        return picked
    return run_every_expert(experts, hidden_states, top_k_index, top_k_weights)


def run_every_expert(
    experts: Any,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Give every token to every expert, and keep what the router asked for; see `static_experts`.

    It costs `num_experts / num_experts_per_tok` times the arithmetic of the picked experts alone.
    """
    name = "gate_up_proj" if experts.has_gate else "up_proj"
    inner = _project(experts, name, hidden_states[None])
    inner = experts._apply_gate(inner) if experts.has_gate else experts.act_fn(inner)
    outputs = _project(experts, "down_proj", inner)
    if experts.has_post_expert_norm:
        outputs = experts.post_expert_norm(outputs)

    device = hidden_states.device
    ids = torch.arange(experts.num_experts, dtype=torch.int32, device=device)[:, None, None]
    zero = torch.zeros((), dtype=top_k_weights.dtype, device=device)
    # [num_experts, num_tokens, num_experts_per_tok]: no token picks an expert twice.
    routes = torch.where(top_k_index.to(torch.int32) == ids, top_k_weights, zero)
    weights = routes.sum(-1, keepdim=True)
    # Not by a weight of 0: what an expert makes of a token that is not its own may be infinite.
    weighted = torch.where(weights == zero, zero, outputs * weights)
    return weighted.sum(0).to(hidden_states.dtype)


def _project(experts: Any, name: str, tokens: torch.Tensor) -> torch.Tensor:
    """Apply a projection of each expert to its tokens, `[num_experts, num_tokens, width]`."""
    weight = getattr(experts, name)
    outputs = torch.matmul(tokens, weight if experts.is_transposed else weight.transpose(1, 2))
    return outputs + getattr(experts, f"{name}_bias")[:, None] if experts.has_bias else outputs


ExpertsInterface.register(EXPERTS_NAME, static_experts)
ExpertsInterface.register(DENSE_EXPERTS_NAME, run_every_expert)
