"""A prompts file as a trace: the lengths of its prompts, and which of them begin alike.

Knows no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from neuron_llm.errors import NeuronLLMError, RequestError
from neuron_llm.report.workload.trace import BadRow, Trace, TraceRequest
from neuron_llm.runtime.batch.prompt_file import PromptReader, open_prompts
from neuron_llm.runtime.batch.prompt_line import BadLine, PromptLine
from neuron_llm.runtime.sampling.sampling_params import SamplingParams
from neuron_llm.runtime.sampling.vocabulary_check import check_prompt

FORMAT_NAME = "prompts"


class PromptTokenizer(Protocol):
    """What turns the prompts of a file into tokens; see `runtime.tokenizer.Tokenizer`."""

    def encode_prompt(self, text: str) -> list[int]:
        """Return the tokens of a plain text."""

    def encode_messages(
        self, messages: Sequence[Mapping[str, Any]], *, chat_template: str | None = None
    ) -> list[int]:
        """Return the tokens of a conversation."""


@dataclass(frozen=True)
class PromptTrace:
    """What a prompts file holds.

    Attributes:
        trace: every prompt comes at once, as often as its line wants completions (`n`). A line's
            `max_tokens` counts as its output: no more is generated. Lines that cannot be run are
            its bad rows.
        warnings: one sentence for each field name that means nothing.
    """

    trace: Trace
    warnings: tuple[str, ...]


class PrefixIds:
    """Numbers blocks of tokens, so that equal ids mean equal blocks with equal ones before them.

    Args:
        block_size: tokens of a block; the last of a prompt may have fewer.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._ids: dict[tuple[int, tuple[int, ...]], int] = {}

    def of(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """Return the id of each block of a prompt."""
        return tuple(self._chain(token_ids))

    def _chain(self, token_ids: Sequence[int]) -> Iterator[int]:
        before = -1
        for start in range(0, len(token_ids), self._block_size):
            block = tuple(token_ids[start : start + self._block_size])
            before = self._ids.setdefault((before, block), len(self._ids))
            yield before


def read_prompt_trace(
    path: Path,
    tokenizer: PromptTokenizer,
    *,
    block_size: int,
    vocab_size: int,
    chat_template: str | None = None,
) -> PromptTrace:
    """Read a prompts file and count its tokens.

    Args:
        path: JSON lines, as `neuron-llm run` takes them.
        tokenizer: the model's.
        block_size: tokens of a block of the KV cache, which prompts share whole.
        vocab_size: of the model, which runs no other tokens.
        chat_template: a Jinja template that replaces the model's.

    Raises:
        NeuronLLMError: the file cannot be read, or not one line of it can be run.
    """
    requests: list[TraceRequest] = []
    bad_rows: list[BadRow] = []
    ids = PrefixIds(block_size)
    with open_prompts(path) as stream:
        reader = PromptReader(stream)
        for line in reader:
            try:
                if isinstance(line, BadLine):
                    raise RequestError(line.message, code=line.code)
                # Read for its limits too: a line that `run` refuses is no part of the workload.
                params = SamplingParams.merged(line.sampling)
                token_ids = _encode(line, tokenizer, chat_template)
                check_prompt(token_ids, vocab_size)
            except RequestError as error:
                bad_rows.append(BadRow(line.line_number, error.message))
            else:
                requests += [_request_of(line, token_ids, ids)] * params.n
        warnings = tuple(reader.warnings())
    if not requests:
        why = f": {bad_rows[0].reason} (line {bad_rows[0].line})" if bad_rows else ""
        raise NeuronLLMError(
            f"no line of the prompts file `{path}` can be run{why}",
            hint='give a file with one JSON object a line, such as `{"prompt": "Hello"}`',
        )
    trace = Trace(FORMAT_NAME, tuple(requests), tuple(bad_rows), block_size, 0)
    return PromptTrace(trace, warnings)


def _encode(line: PromptLine, tokenizer: PromptTokenizer, chat_template: str | None) -> list[int]:
    """Return the tokens of a line, at least one; a `RequestError` if it cannot be run."""
    if line.prompt_token_ids is not None:
        return line.prompt_token_ids
    if line.messages is not None:
        token_ids = tokenizer.encode_messages(line.messages, chat_template=chat_template)
        if not token_ids:
            raise RequestError("the chat template writes nothing", code="empty_prompt")
        return token_ids
    assert line.prompt is not None
    return tokenizer.encode_prompt(line.prompt)


def _request_of(line: PromptLine, token_ids: Sequence[int], ids: PrefixIds) -> TraceRequest:
    return TraceRequest(
        arrival_s=0.0,
        prompt_tokens=len(token_ids),
        output_tokens=line.sampling.get("max_tokens"),
        hash_ids=ids.of(token_ids),
        line=line.line_number,
    )
