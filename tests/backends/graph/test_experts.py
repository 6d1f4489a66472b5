"""Experts in a static form give what transformers' loop over the picked experts gives."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from families import FAMILIES
from transformers import AutoConfig, AutoModelForCausalLM

from neuron_llm.backends.graph.experts import EXPERTS_NAME, static_experts

NUM_EXPERTS, TOP_K, HIDDEN_SIZE = 12, 2, 64


def experts_of(family: str) -> Any:
    """Return a layer's experts, their weights drawn wide."""
    options = dict(FAMILIES[family], num_experts=NUM_EXPERTS, num_local_experts=NUM_EXPERTS)
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config, experts_implementation="eager")
    experts = model.model.layers[0].mlp.experts
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return experts


def routed(num_tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_tokens)
    states = torch.randn(num_tokens, HIDDEN_SIZE, generator=generator)
    scores = torch.randn(num_tokens, NUM_EXPERTS, generator=generator)
    weights, index = scores.softmax(-1).topk(TOP_K)
    return states, index, weights


@pytest.fixture(params=["qwen3-moe", "mixtral", "gpt-oss"])
def experts(request: pytest.FixtureRequest) -> Any:
    return experts_of(request.param)


# Two tokens pick four experts, whose weights are copied; three would be dearer than all of them.
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 17])
@torch.inference_mode()
def test_every_number_of_tokens_gives_what_the_loop_gives(experts: Any, num_tokens: int) -> None:
    states, index, weights = routed(num_tokens)
    expected = experts(states, index, weights)
    output = static_experts(experts, states, index, weights)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
    assert output.dtype == states.dtype


@torch.inference_mode()
def test_an_expert_that_nobody_picked_cannot_reach_a_token(experts: Any) -> None:
    states, _, weights = routed(5)
    index = torch.tensor([[0, 1], [2, 1], [3, 4], [5, 6], [7, 8]])
    expected = static_experts(experts, states, index, weights)
    for parameter in experts.parameters():
        parameter[11] = math.inf
    assert torch.equal(static_experts(experts, states, index, weights), expected)


@torch.inference_mode()
def test_a_padded_token_changes_no_bit_of_another(experts: Any) -> None:
    states, index, weights = routed(8)
    expected = static_experts(experts, states, index, weights)[:5].clone()
    states[5:], index[5:], weights[5:] = math.nan, index[:3].clone(), math.nan
    assert torch.equal(static_experts(experts, states, index, weights)[:5], expected)


def test_it_is_registered_under_its_name() -> None:
    config = AutoConfig.for_model("mixtral", num_hidden_layers=1, hidden_size=64, vocab_size=8)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, experts_implementation=EXPERTS_NAME)
    assert model.config._experts_implementation == EXPERTS_NAME
