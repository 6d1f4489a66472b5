"""Logits to tokens: greedy, or drawn by temperature, min-p, top-k, top-p; a generator per request.

A request's tokens depend on its own logits, parameters and generator only: what else is in the
batch, and in which row, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from neuron_llm.errors import NeuronLLMError
from neuron_llm.runtime.sampling.logits_processors import logits_processors
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.sampling.sampling_state import SamplingState

MIN_TEMPERATURE = 0.01
"""Smaller positive temperatures are raised to it, as in vLLM: dividing by less overflows."""

_NUM_CANDIDATES = 1024
"""How many of the most likely tokens are sorted before the whole vocabulary is."""


class SamplingError(NeuronLLMError):
    """What a graph gave some requests of a batch leads to no token.

    Args:
        message: see `NeuronLLMError`.
        request_ids: the requests concerned; none of the batch has drawn anything yet, so that the
            others can be sampled again without them.
    """

    def __init__(self, message: str, request_ids: Sequence[str]) -> None:
        super().__init__(
            message,
            hint="if it is not the request, compile the artifact again, without `--no-verify`",
        )
        self.request_ids = tuple(request_ids)


class InvalidLogitsError(SamplingError):
    """The graph gave a request NaN or infinite logits, or every token was masked.

    Args:
        request_ids: see `SamplingError`.
    """

    def __init__(self, request_ids: Sequence[str]) -> None:
        names = ", ".join(f"`{request_id}`" for request_id in request_ids)
        super().__init__(
            f"the logits of {names} hold no finite largest value: the graph gave none, or fields "
            "such as `allowed_token_ids` and `min_tokens` leave no token",
            request_ids,
        )


class Sampler:
    """Chooses the next token of each request from its row of logits.

    Args:
        eos_token_ids: the model's end-of-sequence tokens.
    """

    def __init__(self, eos_token_ids: Sequence[int]) -> None:
        self.eos_token_ids = tuple(eos_token_ids)

    def new_state(
        self,
        request_id: str,
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int] = (),
        bad_words: Sequence[Sequence[int]] = (),
        index: int = 0,
    ) -> SamplingState:
        """Return the state with which a sequence begins; without a seed it draws from entropy.

        Args:
            request_id: for messages.
            params: of the request.
            prompt_token_ids: its prompt, which the repetition penalty counts.
            bad_words: the tokens of `params.bad_words`.
            index: which of the request's `n` completions it is.
        """
        generator = None
        if not params.is_greedy:
            generator = torch.Generator()
            if params.seed is None:
                generator.seed()
            else:
                generator.manual_seed(params.seed + index)
        processors = logits_processors(
            params,
            prompt_token_ids=prompt_token_ids,
            bad_words=bad_words,
            ending_token_ids=sorted({*self.eos_token_ids, *params.stop_token_ids}),
        )
        # The prompt of all completions is the same one.
        num_prompt_logprobs = params.prompt_logprobs if index == 0 else None
        return SamplingState(
            request_id=request_id,
            params=params,
            generator=generator,
            processors=processors,
            num_prompt_logprobs=num_prompt_logprobs,
        )

    def check(self, params: SamplingParams) -> None:
        """Pass parameters that can be honoured with what the graphs give.

        Raises:
            RequestError: names the parameter that cannot; with logits, none.
        """

    def sample(self, outputs: torch.Tensor, rows: Sequence[SamplingState]) -> list[int]:
        """Return the next token of each row and count it in the row's state.

        A token that would be thrown away, as after a chunk of a prompt that is not the last, must
        not be sampled: its draw would shift all later ones.

        Args:
            outputs: logits `[num_rows, vocab_size]` on the CPU, any float dtype, left as they are;
                rows past the last state are padding and never read.
            rows: one state per real row.

        Raises:
            InvalidLogitsError: a row has no finite largest logit; no state has changed.
        """
        assert outputs.dim() == 2 and len(rows) <= len(outputs), "one row of logits per request"
        logits = _processed(outputs[: len(rows)], rows)
        token_ids = logits.argmax(dim=-1, keepdim=True)
        _check_finite(logits.gather(1, token_ids), rows)
        chosen: list[int] = token_ids.flatten().tolist()
        for index, state in enumerate(rows):
            if state.generator is not None:
                chosen[index] = _draw(logits[index], state.params, state.generator)
            state.add(chosen[index])
        return chosen


def _processed(logits: torch.Tensor, rows: Sequence[SamplingState]) -> torch.Tensor:
    """Return the logits in float32, each row as its request wants it."""
    changed = [index for index, state in enumerate(rows) if state.processors]
    logits = logits.to(torch.float32, copy=bool(changed))
    for index in changed:
        for processor in rows[index].processors:
            processor.apply(logits[index], rows[index].output_token_ids)
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
    """Apply temperature, min-p and top-k, and then top-p to one row.

    Min-p and top-k each keep the most likely tokens down to some logit, so both keep what the
    higher of the two does, whichever comes first.

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
    if params.min_p > 0:
        kept = (weights >= params.min_p).nonzero().flatten()
        token_ids, weights = token_ids[kept], weights[kept]
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
