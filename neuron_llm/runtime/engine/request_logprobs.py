"""The log probabilities of one sequence, from the sampler's numbers to what is returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from neuron_llm.runtime.engine.outputs import Logprob
from neuron_llm.runtime.engine.step import SampledStep
from neuron_llm.runtime.sampling.logprobs import TokenLogprobs
from neuron_llm.runtime.text.token_texts import NUM_CONTEXT_TOKENS, TokenTexts


class RequestLogprobs:
    """Collects what a sequence's result says of log probabilities.

    Args:
        texts: of the model's tokens.
        prompt_token_ids: what the output follows.
        with_output: whether those of the output are wanted.

    Attributes:
        of_prompt: for each prompt token, by token id, its own first; None for the first token. None
            as long as, or because, there are none.
    """

    def __init__(
        self, texts: TokenTexts, prompt_token_ids: Sequence[int], *, with_output: bool
    ) -> None:
        self._texts = texts
        self._prompt_token_ids = prompt_token_ids
        self._context = list(prompt_token_ids[-NUM_CONTEXT_TOKENS:])
        self._of_output: list[Mapping[int, Logprob]] | None = [] if with_output else None
        self._cumulative = 0.0
        self.of_prompt: tuple[Mapping[int, Logprob] | None, ...] | None = None

    @property
    def of_output(self) -> tuple[Mapping[int, Logprob], ...] | None:
        """For each output token, by token id, its own first; None if not wanted."""
        return None if self._of_output is None else tuple(self._of_output)

    @property
    def cumulative(self) -> float | None:
        """The sum of the output tokens' own; None if not wanted."""
        return None if self._of_output is None else self._cumulative

    def add_step(self, request_id: str, sampled: SampledStep) -> None:
        """Take in what a step has given the sequence; the first one ends its prompt."""
        scores = sampled.step.prompt_scores
        if scores is not None:
            self.of_prompt = self._prompt(scores.tokens)
        token = sampled.logprobs.get(request_id)
        if token is not None:
            assert self._of_output is not None
            self._of_output.append(self._by_token(token, self._context))
            self._cumulative += token.logprobs[0]
            self._context = [*self._context, token.token_ids[0]][-NUM_CONTEXT_TOKENS:]

    def _prompt(self, tokens: Iterable[TokenLogprobs]) -> tuple[Mapping[int, Logprob] | None, ...]:
        prompt = self._prompt_token_ids
        scored = (
            self._by_token(token, prompt[max(0, position - NUM_CONTEXT_TOKENS) : position])
            for position, token in enumerate(tokens, start=1)
        )
        return (None, *scored)

    def _by_token(self, token: TokenLogprobs, context: Sequence[int]) -> dict[int, Logprob]:
        # The token itself stays in front; where it is among the most likely ones, its rank there
        # counts, which differs only for equals.
        ranks = [token.rank, *range(1, len(token.token_ids))]
        return {
            token_id: Logprob(logprob, rank, self._texts.text(token_id, context))
            for token_id, logprob, rank in zip(token.token_ids, token.logprobs, ranks, strict=True)
        }
