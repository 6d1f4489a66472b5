"""Rotary frequencies that a sequence's length would change hold for the longest request."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from families import FAMILIES
from transformers import AutoConfig, AutoModelForCausalLM

from neuron_llm.backends.graph.rotary import fix_rotary_frequencies

TOKENS = torch.arange(3, 33)[None]


def build(settings: dict[str, Any]) -> Any:
    options = dict(settings)
    torch.manual_seed(0)
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


@torch.inference_mode()
def logits(model: Any, num_tokens: int) -> torch.Tensor:
    result: torch.Tensor = model(TOKENS[:, :num_tokens], use_cache=False).logits
    return result


# Short factors up to 8 tokens: eager takes the long ones for 9 and more.
LONGROPE = FAMILIES["phi3-long-factors"]


def test_a_longer_limit_means_the_long_factors_as_a_longer_sequence_does() -> None:
    model, fixed = build(LONGROPE), build(LONGROPE)
    fix_rotary_frequencies(fixed, 9)
    assert torch.equal(logits(fixed, 30), logits(model, 30))
    # A shorter sequence keeps them, where eager turns back.
    assert torch.equal(logits(fixed, 30)[:, 7], logits(model, 30)[:, 7])
    assert not torch.allclose(logits(fixed, 8), logits(model, 8))


def test_a_limit_within_the_short_range_means_the_short_factors() -> None:
    model, fixed = build(LONGROPE), build(LONGROPE)
    fix_rotary_frequencies(fixed, 8)
    assert torch.equal(logits(fixed, 8), logits(model, 8))
    assert not torch.allclose(logits(fixed, 30), logits(model, 30))


def test_without_a_limit_the_longest_sequence_of_the_model_counts() -> None:
    fixed, by_limit = build(LONGROPE), build(LONGROPE)
    fix_rotary_frequencies(fixed)
    fix_rotary_frequencies(by_limit, 512)
    assert torch.equal(logits(fixed, 8), logits(by_limit, 8))


def test_dynamic_scaling_is_what_it_is_up_to_the_longest_sequence() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
    settings = {**FAMILIES["llama"], "rope_parameters": rope, "max_position_embeddings": 30}
    model, fixed = build(settings), build(settings)
    fix_rotary_frequencies(fixed, 30)
    assert torch.equal(logits(fixed, 30), logits(model, 30))
    assert fixed.model.rotary_emb.rope_type == "default"


def test_frequencies_by_layer_type_are_fixed_one_by_one() -> None:
    rope = {
        "full_attention": LONGROPE["rope_parameters"],
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    }
    settings = {**FAMILIES["gemma3"], "head_dim": 16, "rope_parameters": rope}
    model, fixed = build(settings), build(settings)
    fix_rotary_frequencies(fixed, 9)
    assert torch.equal(logits(fixed, 30), logits(model, 30))
    assert not torch.allclose(logits(fixed, 8), logits(model, 8))


@pytest.mark.parametrize("family", ["llama", "llama-llama3-rope", "llama-yarn-biases", "gemma3"])
def test_other_models_stay_as_they_are(family: str) -> None:
    model, fixed = build(FAMILIES[family]), build(FAMILIES[family])
    fix_rotary_frequencies(fixed, 20)
    assert torch.equal(logits(fixed, 30), logits(model, 30))
    kept = [getattr(module, "rope_type", None) for module in model.modules()]
    assert [getattr(module, "rope_type", None) for module in fixed.modules()] == kept
