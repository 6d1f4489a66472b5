"""What a request may ask for where graphs give tokens instead of logits. Knows no torch."""

from __future__ import annotations

from typing import Any

from neuron_llm.errors import RequestError
from neuron_llm.runtime.sampling.sampling_params import SamplingParams

# Fields that change or read logits, and of which only the default does neither.
_LOGITS_FIELDS = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
)
_DEFAULTS = SamplingParams()


def default_fields(*, samples_greedily: bool) -> dict[str, Any]:
    """Return what an artifact says of sampling, a layer for `SamplingParams.merged`.

    Whoever compiled graphs that take the most likely token has chosen temperature 0. That holds
    for requests that name none, over vLLM's default and the model's `generation_config.json`.
    """
    return {"temperature": 0} if samples_greedily else {}


def check_greedy_only(params: SamplingParams) -> None:
    """Refuse parameters that need logits.

    A greedy request may have `top_p`, `top_k`, `min_p` and `seed`: they leave it its token.

    Raises:
        RequestError: names the parameter and what to do (code `needs_logits`).
    """
    if not params.is_greedy:
        raise _needs_logits("temperature", params.temperature, "set it to 0")
    for name in _LOGITS_FIELDS:
        value, default = getattr(params, name), getattr(_DEFAULTS, name)
        if value != default:
            is_number = isinstance(default, int | float)
            raise _needs_logits(name, value, f"set it to {default:g}" if is_number else "remove it")


def _needs_logits(name: str, value: object, way_out: str) -> RequestError:
    return RequestError(
        f"`{name}` is {value!r:.80}, which needs logits, and the graphs of this artifact give the "
        f"most likely token only: {way_out}, or compile without "
        "`neuron_config.on_device_sampling_config`",
        code="needs_logits",
    )
