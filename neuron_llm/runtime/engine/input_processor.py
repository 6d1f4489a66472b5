"""From what a user asks for to what the scheduler and the sampler take; vLLM's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from neuron_llm.runtime.engine.options import EngineOptions
from neuron_llm.runtime.engine.parallel_sampling import ParallelSampling
from neuron_llm.runtime.sampling.sampler import Sampler
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.sampling.sampling_state import SamplingState
from neuron_llm.runtime.sampling.vocabulary_check import check_prompt, check_sampling
from neuron_llm.runtime.text.bad_words import bad_words_token_ids
from neuron_llm.runtime.text.tokenizer import Tokenizer
from neuron_llm.scheduler import Request


@dataclass(frozen=True)
class NewSequence:
    """One completion of a request that is about to be queued.

    Attributes:
        request: what the scheduler takes.
        sampling: how its tokens are picked.
    """

    request: Request
    sampling: SamplingState


class InputProcessor:
    """Checks prompts and their parameters and makes sequences of them.

    Args:
        tokenizer: the model's.
        sampler: picks the tokens.
        options: how the artifact is served.
        vocab_size: of the model.
        max_model_len: the most tokens of a sequence.
        clock: seconds; only differences count.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sampler: Sampler,
        options: EngineOptions,
        *,
        vocab_size: int,
        max_model_len: int,
        clock: Callable[[], float],
    ) -> None:
        self._tokenizer = tokenizer
        self._sampler = sampler
        self._options = options
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._clock = clock

    def sequences(
        self, request_id: str, prompt_token_ids: Sequence[int], params: SamplingParams
    ) -> Iterator[NewSequence]:
        """Return a request's completions, by index; each arrives when it is taken.

        Raises:
            RequestError: the prompt or the parameters are none for this model; before any is taken.
        """
        check_prompt(prompt_token_ids, self._vocab_size)
        self._sampler.check(params)
        bad_words = bad_words_token_ids(self._tokenizer, params.bad_words)
        check_sampling(params, bad_words, self._vocab_size)
        sequence_ids = ParallelSampling.sequence_ids(request_id, params.n)
        states = (
            self._sampler.new_state(
                sequence_id,
                params,
                prompt_token_ids=prompt_token_ids,
                bad_words=bad_words,
                index=index,
            )
            for index, sequence_id in enumerate(sequence_ids)
        )
        return (NewSequence(self._request(prompt_token_ids, state), state) for state in states)

    def _request(self, prompt_token_ids: Sequence[int], state: SamplingState) -> Request:
        params, num_prompt_tokens = state.params, len(prompt_token_ids)
        is_scored = state.num_prompt_logprobs is not None
        room = max(self._max_model_len - num_prompt_tokens, 1)
        return Request(
            request_id=state.request_id,
            prompt_token_ids=prompt_token_ids,
            max_tokens=room if params.max_tokens is None else params.max_tokens,
            min_tokens=params.min_tokens,
            eos_token_ids=frozenset(self._sampler.eos_token_ids),
            stop_token_ids=frozenset(params.stop_token_ids),
            ignore_eos=params.ignore_eos,
            skip_reading_prefix_cache=is_scored,
            max_shared_tokens=self._options.max_shared_tokens(num_prompt_tokens, is_scored),
            arrival_time=self._clock(),
        )
