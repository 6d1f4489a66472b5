"""Logits to tokens: greedy, temperature, top-k, top-p, minimum length, one generator per request.

A request's tokens depend on its own logits, parameters and generator only: what else is in the
batch, and in which row, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.sampling_params import SamplingParams

MIN_TEMPERATURE = 0.01
"""Smaller positive temperatures are raised to it, as in vLLM: dividing by less overflows."""

_NUM_CANDIDATES = 1024
"""How many of the most likely tokens are sorted before the whole vocabulary is."""


class InvalidLogitsError(NeuronLLMError):
    """The graph gave a request NaN or infinite logits, or every token was masked.

    Args:
        request_ids: the requests concerned; none of the batch has drawn anything yet, so that the
            others can be sampled again without them.
    """

    def __init__(self, request_ids: Sequence[str]) -> None:
        names = ", ".join(f"`{request_id}`" for request_id in request_ids)
        super().__init__(
            f"the logits of {names} hold no finite largest value",
            hint="run `neuron-llm compile --verify` to see whether the graphs or the weights are "
            "at fault",
        )
        self.request_ids = tuple(request_ids)


@dataclass
class SamplingState:
    """What sampling remembers of one request.

    Attributes:
        request_id: for messages.
        params: see `SamplingParams`.
        generator: where the draws come from; None for a greedy request.
        ending_token_ids: end-of-sequence and stop tokens, not to be chosen before `min_tokens`.
        num_output_tokens: tokens sampled so far.
        is_over: whether the request gets no more tokens.
    """

    request_id: str
    params: SamplingParams
    generator: torch.Generator | None
    ending_token_ids: tuple[int, ...]
    num_output_tokens: int = 0
    is_over: bool = False

    @property
    def is_below_min_tokens(self) -> bool:
        """Whether a token that ends the output must not be chosen yet."""
        return self.num_output_tokens < self.params.min_tokens


class Sampler:
    """Chooses the next token of each request from its row of logits.

    Args:
        eos_token_ids: the model's end-of-sequence tokens.
    """

    def __init__(self, eos_token_ids: Sequence[int]) -> None:
        self.eos_token_ids = tuple(eos_token_ids)

    def new_state(self, request_id: str, params: SamplingParams) -> SamplingState:
        """Return the state with which a request begins; without a seed it draws from entropy."""
        generator = None
        if not params.is_greedy:
            generator = torch.Generator()
            if params.seed is None:
                generator.seed()
            else:
                generator.manual_seed(params.seed)
        return SamplingState(
            request_id=request_id,
            params=params,
            generator=generator,
            ending_token_ids=tuple({*self.eos_token_ids, *params.stop_token_ids}),
        )

    def sample(self, logits: torch.Tensor, rows: Sequence[SamplingState]) -> list[int]:
        """Return the next token of each row and count it in the row's state.

        A token that would be thrown away, as after a chunk of a prompt that is not the last, must
        not be sampled: its draw would shift all later ones.

        Args:
            logits: `[num_rows, vocab_size]` on the CPU, any float dtype, left as they are; rows
                past the last state are padding and never read.
            rows: one state per real row.

        Raises:
            InvalidLogitsError: a row has no finite largest logit; no state has changed.
        """
        assert logits.dim() == 2 and len(rows) <= logits.shape[0], "one row of logits per request"
        logits = _without_early_endings(logits[: len(rows)].float(), rows)
        token_ids = logits.argmax(dim=-1, keepdim=True)
        _check_finite(logits.gather(1, token_ids), rows)
        chosen: list[int] = token_ids.flatten().tolist()
        for index, state in enumerate(rows):
            if state.generator is not None:
                chosen[index] = _draw(logits[index], state.params, state.generator)
            state.num_output_tokens += 1
        return chosen


def _without_early_endings(logits: torch.Tensor, rows: Sequence[SamplingState]) -> torch.Tensor:
    early = [index for index, state in enumerate(rows) if state.is_below_min_tokens]
    if early:
        logits = logits.clone()
    for index in early:
        ids = [i for i in rows[index].ending_token_ids if i < logits.shape[1]]
        logits[index, ids] = -torch.inf
    return logits


def _check_finite(largest: torch.Tensor, rows: Sequence[SamplingState]) -> None:
    # argmax takes NaN for the largest value, so one look at it finds a NaN anywhere in the row.
    is_finite = largest.isfinite().flatten()
    if not bool(is_finite.all()):
        states = zip(rows, is_finite.tolist(), strict=True)
        raise InvalidLogitsError([state.request_id for state, finite in states if not finite])


def _draw(logits: torch.Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """Draw one token from one row, `[vocab_size]` float32."""
    token_ids, weights = kept_distribution(logits, params)
    # One uniform number per token, not one exponential per vocabulary entry as in the Gumbel trick:
    # the same distribution for a hundredth of the time. float64, so that no tail is rounded away.
    cumulative = weights.cumsum(dim=0)
    # At most 1 - 2**-53, so that the product stays below the last sum, however it is rounded.
    point = torch.rand((), generator=generator, dtype=torch.float64) * cumulative[-1]
    return int(token_ids[torch.searchsorted(cumulative, point, right=True)])


def kept_distribution(
    logits: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply temperature, then top-k, then top-p to one row.

    Args:
        logits: `[vocab_size]` float32 with a finite largest value.
        params: of a request that is not greedy.

    Returns:
        (ids of the tokens that may be drawn, ascending, `[num_kept]` int64; their weights relative
        to the most likely one, `[num_kept]` float64, not normalised).
    """
    scaled = logits / max(params.temperature, MIN_TEMPERATURE)
    token_ids = torch.arange(len(scaled))
    if 0 < params.top_k < len(scaled):
        # Tokens tied with the last one kept stay, as in vLLM and transformers.
        token_ids = (scaled >= scaled.topk(params.top_k).values[-1]).nonzero().flatten()
        scaled = scaled[token_ids]
    weights = (scaled - scaled.max()).double().exp()
    if params.top_p < 1:
        kept = _nucleus(weights, params.top_p)
        token_ids, weights = token_ids[kept], weights[kept]
    return token_ids, weights


def _nucleus(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the indices, ascending, of the fewest largest weights that hold `top_p` of their sum.

    Of equal weights at the edge the lowest indices are kept, so that the set is the same whatever
    the order in which a sort leaves ties.
    """
    mass = top_p * weights.sum()
    largest = weights.topk(min(_NUM_CANDIDATES, len(weights))).values
    if largest.sum() < mass:
        largest = weights.sort(descending=True).values
    mass_before = largest.cumsum(dim=0) - largest
    num_kept = max(1, int((mass_before < mass).sum()))
    smallest = largest[num_kept - 1]
    above = (weights > smallest).nonzero().flatten()
    tied = (weights == smallest).nonzero().flatten()[: num_kept - len(above)]
    return torch.cat([above, tied]).sort().values
