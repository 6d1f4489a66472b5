"""Request fields of vLLM's and OpenAI's that this version refuses by name. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping

from neuron_llm.errors import RequestError

# Each field with the values that ask for nothing. Those pass, since clients send them by default;
# any other value is refused, because ignoring it would change the result without a word.
UNSUPPORTED_FIELDS: Mapping[str, tuple[object, ...]] = {
    "detokenize": (True,),
    "echo": (False,),
    "extra_args": ({},),
    "flat_logprobs": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "length_penalty": (1,),
    "logprob_token_ids": ([],),
    "output_kind": (),
    "repetition_detection": (),
    "response_format": ({"type": "text"},),
    "spaces_between_special_tokens": (True,),
    "stream": (False,),
    "stream_interval": (1,),
    "structured_outputs": (),
    "suffix": ("",),
    "thinking_token_budget": (-1,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}


def refuse_unsupported_fields(fields: Mapping[str, object]) -> None:
    """Refuse a field that would change the result but is not implemented.

    `echo: false` and null ask for nothing and pass.

    Raises:
        RequestError: names the field (code `unsupported_field`).
    """
    for name, value in fields.items():
        if name in UNSUPPORTED_FIELDS and not _is_neutral(name, value):
            raise RequestError(
                f"`{name}` is not supported in this version, got {value!r:.80}",
                code="unsupported_field",
                hint=f"remove `{name}` from the request",
            )


def _is_neutral(name: str, value: object) -> bool:
    """Whether `value` asks nothing of the unsupported field `name`."""
    # True == 1 and False == 0 in Python, but `length_penalty: true` is a mistake and not a 1.
    return value is None or any(
        value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
        for neutral in UNSUPPORTED_FIELDS[name]
    )
