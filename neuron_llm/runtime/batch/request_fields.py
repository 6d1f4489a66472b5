"""The sampling fields of a request as it comes in: vLLM's, and OpenAI's other names for some.

Knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.sampling_checks import invalid, parse_num_logprobs
from neuron_llm.runtime.sampling.sampling_params import SAMPLING_FIELDS

_MAX_TOKENS_ALIAS = "max_completion_tokens"
_TOP_LOGPROBS = "top_logprobs"

OPENAI_FIELDS = frozenset({_MAX_TOKENS_ALIAS, _TOP_LOGPROBS})
"""The names that `sampling_fields` takes besides those of `SamplingParams`."""


def sampling_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling fields of a request, a layer for `SamplingParams.merged`.

    `max_completion_tokens` is `max_tokens`. `logprobs: true` with `top_logprobs: 5`, as in a chat,
    is `logprobs: 5`, and without it 0.

    Raises:
        RequestError: `top_logprobs` is no count, or `logprobs` is not true beside it (code
            `invalid_sampling`).
    """
    fields = {name: value for name, value in request.items() if name in SAMPLING_FIELDS}
    if request.get(_MAX_TOKENS_ALIAS) is not None:
        fields["max_tokens"] = request[_MAX_TOKENS_ALIAS]
    top_logprobs = request.get(_TOP_LOGPROBS)
    if isinstance(top_logprobs, bool):
        raise invalid(_TOP_LOGPROBS, top_logprobs, "an integer >= -1")
    count = parse_num_logprobs(_TOP_LOGPROBS, top_logprobs)
    if request.get("logprobs") is True:
        fields["logprobs"] = count or 0
    elif count:
        raise RequestError(
            f"`{_TOP_LOGPROBS}` is {count}, but `logprobs` is not true", code="invalid_sampling"
        )
    return fields
