"""Sampler states and logits for tests, and what Hugging Face makes of logits."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from neuron_llm.runtime.sampling.sampler import Sampler
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.sampling.sampling_state import SamplingState

VOCAB_SIZE = 97
EOS = 3


def make_state(sampler: Sampler | None = None, name: str = "r", **fields: Any) -> SamplingState:
    fields = {"max_tokens": None, **fields}
    return (sampler or Sampler([EOS])).new_state(name, SamplingParams(**fields))


def random_logits(num_rows: int, seed: int, vocab_size: int = VOCAB_SIZE) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def hugging_face_probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    scores = logits[None]
    token_ids = torch.zeros(1, 0, dtype=torch.int64)
    scores = TemperatureLogitsWarper(float(params.temperature))(token_ids, scores).double()
    if params.min_p > 0:
        scores = MinPLogitsWarper(float(params.min_p))(token_ids, scores)
    if params.top_k > 0:
        scores = TopKLogitsWarper(params.top_k)(token_ids, scores)
    if params.top_p < 1:
        scores = TopPLogitsWarper(float(params.top_p))(token_ids, scores)
    probabilities: torch.Tensor = scores.softmax(dim=-1)[0]
    return probabilities


def dense(token_ids: torch.Tensor, weights: torch.Tensor, vocab_size: int) -> torch.Tensor:
    probabilities = torch.zeros(vocab_size, dtype=torch.float64)
    probabilities[token_ids] = weights / weights.sum()
    return probabilities
