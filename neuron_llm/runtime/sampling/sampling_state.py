"""What sampling remembers of one sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from neuron_llm.runtime.sampling.logits_processors import EndingTokens, LogitsProcessor
from neuron_llm.runtime.sampling.sampling_params import SamplingParams


@dataclass(kw_only=True)
class SamplingState:
    """What sampling remembers of one sequence.

    Attributes:
        request_id: its id, for messages.
        params: see `SamplingParams`.
        generator: where the draws come from; None for a greedy request.
        processors: what changes its logits, in order; often nothing.
        num_prompt_logprobs: so many of the most likely tokens are wanted with each prompt token;
            None for no log probabilities of the prompt.
        output_token_ids: tokens sampled so far.
        is_over: whether it gets no more tokens.
    """

    request_id: str
    params: SamplingParams
    generator: torch.Generator | None
    processors: tuple[LogitsProcessor, ...]
    num_prompt_logprobs: int | None = None
    output_token_ids: list[int] = field(default_factory=list)
    is_over: bool = False

    def add(self, token_id: int) -> None:
        """Take in the next token."""
        self.output_token_ids.append(token_id)
        if len(self.output_token_ids) == self.params.min_tokens:
            others = (p for p in self.processors if not isinstance(p, EndingTokens))
            self.processors = tuple(others)
