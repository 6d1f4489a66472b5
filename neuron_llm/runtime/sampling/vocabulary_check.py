"""Whether the token ids that a request names exist in the model. Knows no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.sampling_params import SamplingParams


def check_prompt(token_ids: Iterable[int], vocab_size: int) -> None:
    """Refuse a prompt with a token outside the vocabulary.

    Raises:
        RequestError: names the token (code `invalid_token_id`).
    """
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise RequestError(
                f"token id {token_id} is outside the vocabulary (0 to {vocab_size - 1})",
                code="invalid_token_id",
            )


def check_sampling(
    params: SamplingParams, bad_words: Sequence[Sequence[int]], vocab_size: int
) -> None:
    """Refuse parameters that name tokens, or more tokens, than the vocabulary has.

    Args:
        params: of the request.
        bad_words: the tokens of `params.bad_words`.
        vocab_size: of the model.

    Raises:
        RequestError: names the field (code `invalid_sampling`).
    """
    for name, token_ids in (
        ("stop_token_ids", params.stop_token_ids),
        ("logit_bias", dict(params.logit_bias)),
        ("allowed_token_ids", params.allowed_token_ids or ()),
        ("bad_words", [token_id for word in bad_words for token_id in word]),
    ):
        # The largest tells whether any is: ids are never negative.
        if token_ids and max(token_ids) >= vocab_size:
            unknown = [token_id for token_id in token_ids if token_id >= vocab_size]
            raise RequestError(
                f"`{name}` holds {unknown!r:.80}, outside the vocabulary (0 to {vocab_size - 1})",
                code="invalid_sampling",
            )
    for name, count in (
        ("logprobs", params.logprobs),
        ("prompt_logprobs", params.prompt_logprobs),
    ):
        if count is not None and count > vocab_size:
            raise RequestError(
                f"`{name}` is {count}, more than the vocabulary has tokens, {vocab_size}",
                code="invalid_sampling",
                hint="-1 asks for all of them",
            )
