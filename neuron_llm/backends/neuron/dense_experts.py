"""A mixture of experts in the form that lowers: every expert on every token, then a routed sum.

It gathers no weights, and nothing in it depends on data. It costs `num_experts /
num_experts_per_tok` times the arithmetic of the chosen experts alone.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.integrations.moe import ExpertsInterface

DENSE_EXPERTS_NAME = "neuron_llm_dense"


def dense_experts(
    module: Any, tokens: torch.Tensor, expert_ids: torch.Tensor, expert_weights: torch.Tensor
) -> torch.Tensor:
    """Return the weighted sum of each token's experts.

    Args:
        module: the experts of a layer, as transformers describes them.
        tokens: `[num_tokens, hidden_size]`.
        expert_ids: `[num_tokens, num_experts_per_tok]`.
        expert_weights: of the same shape.

    Returns:
        `[num_tokens, hidden_size]`.
    """
    experts = torch.arange(module.num_experts, dtype=torch.int32, device=tokens.device)
    is_chosen = expert_ids.to(torch.int32)[..., None] == experts
    zero = torch.zeros((), dtype=expert_weights.dtype, device=tokens.device)
    # [num_tokens, num_experts]: no expert is chosen twice, and no chosen one has the weight 0.
    routes = torch.where(is_chosen, expert_weights[..., None], zero).sum(dim=1)
    routes = routes.t()[..., None]
    name = "gate_up_proj" if module.has_gate else "up_proj"
    hidden = _project(module, name, tokens[None])
    hidden = module._apply_gate(hidden) if module.has_gate else module.act_fn(hidden)
    outputs = _project(module, "down_proj", hidden)
    if module.has_post_expert_norm:
        outputs = module.post_expert_norm(outputs)
    # Not by a weight of 0: what an expert makes of a token that is not its own may be infinite.
    outputs = torch.where(routes == zero, zero, outputs * routes)
    return outputs.sum(dim=0).to(tokens.dtype)


def _project(module: Any, name: str, tokens: torch.Tensor) -> torch.Tensor:
    """Apply a projection of each expert, `[num_experts, num_tokens, width]`."""
    weight = getattr(module, name)
    outputs = torch.matmul(tokens, weight if module.is_transposed else weight.transpose(1, 2))
    return outputs + getattr(module, f"{name}_bias")[:, None] if module.has_bias else outputs


ExpertsInterface.register(DENSE_EXPERTS_NAME, dense_experts)
