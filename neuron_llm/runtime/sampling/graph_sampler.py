"""Sampling where it has been done: the graphs of the artifact give the most likely tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.runtime.sampling.greedy_only import check_greedy_only
from neuron_llm.runtime.sampling.sampler import Sampler, SamplingError
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.sampling.sampling_state import SamplingState


class InvalidTokenError(SamplingError):
    """A graph gave requests tokens that do not exist.

    Args:
        given: the token of each request concerned, by request id.
        vocab_size: of the model.
    """

    def __init__(self, given: dict[str, int], vocab_size: int) -> None:
        tokens = ", ".join(f"`{request_id}` token {token}" for request_id, token in given.items())
        super().__init__(
            f"the graph gave {tokens}, outside the vocabulary (0 to {vocab_size - 1})",
            list(given),
        )


class GraphSampler(Sampler):
    """Takes the token that the graph has chosen for each request.

    Args:
        eos_token_ids: the model's end-of-sequence tokens.
        vocab_size: of the model.
    """

    def __init__(self, eos_token_ids: Sequence[int], vocab_size: int) -> None:
        super().__init__(eos_token_ids)
        self._vocab_size = vocab_size

    def check(self, params: SamplingParams) -> None:
        """See `Sampler.check`: what needs logits is refused (code `needs_logits`)."""
        check_greedy_only(params)

    def sample(self, outputs: torch.Tensor, rows: Sequence[SamplingState]) -> list[int]:
        """Return the next token of each row and count it in the row's state.

        Args:
            outputs: `[num_rows]` int32, what the graph chose; rows past the last state are padding
                and never read.
            rows: one state per real row.

        Raises:
            InvalidTokenError: a token is outside the vocabulary; no state has changed.
        """
        assert outputs.dim() == 1 and len(rows) <= len(outputs), "one token per request"
        token_ids: list[int] = outputs[: len(rows)].tolist()
        wrong = {
            state.request_id: token_id
            for state, token_id in zip(rows, token_ids, strict=True)
            if not 0 <= token_id < self._vocab_size
        }
        if wrong:
            raise InvalidTokenError(wrong, self._vocab_size)
        for state, token_id in zip(rows, token_ids, strict=True):
            state.add(token_id)
        return token_ids


def sampler_of(manifest: Manifest, eos_token_ids: Sequence[int]) -> Sampler:
    """Return what picks the tokens from what an artifact's graphs give."""
    if manifest.settings.samples_greedily:
        return GraphSampler(eos_token_ids, manifest.model.vocab_size)
    return Sampler(eos_token_ids)
