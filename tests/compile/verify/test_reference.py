"""The reference computes in float32, and keeps the weights as the checkpoint has them."""

from __future__ import annotations

import copy

import pytest
import torch
from families import FAMILIES
from transformers import AutoConfig, AutoModelForCausalLM

from neuron_llm.compile.verify.reference import compute_in_float32

TOKENS = torch.tensor([[5, 17, 200, 3, 9, 80, 41]])


@pytest.mark.parametrize("family", FAMILIES)
def test_widening_layer_by_layer_computes_what_a_float32_model_does(family: str) -> None:
    settings = dict(FAMILIES[family])
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    whole = copy.deepcopy(model).float()
    compute_in_float32(model)
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(model(input_ids=TOKENS).logits, whole(input_ids=TOKENS).logits)
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, weights[name]), name
