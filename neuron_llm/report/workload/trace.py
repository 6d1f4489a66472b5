"""A workload: when requests came, how long they were, and which prefixes they shared.

Knows no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuron_llm.report.workload.length_histogram import LengthHistogram


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        arrival_s: seconds after the first request of the trace.
        prompt_tokens: at least 1.
        output_tokens: None where the trace does not say.
        hash_ids: one for each block of the prompt, the last block possibly not full; an id stands
            for its block's tokens and every token before them. Empty where the trace has none.
        line: where it stands in the file, from 1.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int | None
    hash_ids: tuple[int, ...]
    line: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that says no request.

    Attributes:
        line: where it stands in the file, from 1.
        reason: what is wrong with it.
    """

    line: int
    reason: str


@dataclass(frozen=True)
class Trace:
    """What a trace file holds: every line but blank ones is a request or a bad row.

    Attributes:
        format_name: whose columns they are.
        requests: ordered by arrival; those of one moment, by line.
        bad_rows: ordered by line.
        block_size: tokens of a block that a hash id stands for; None without hash ids.
        num_unsorted: requests that came earlier than the request in the line above theirs.
    """

    format_name: str
    requests: tuple[TraceRequest, ...]
    bad_rows: tuple[BadRow, ...]
    block_size: int | None
    num_unsorted: int

    @property
    def prompt_lengths(self) -> LengthHistogram:
        """How often each length of a prompt occurs."""
        return LengthHistogram.of(request.prompt_tokens for request in self.requests)

    @property
    def total_lengths(self) -> LengthHistogram:
        """How often each length of prompt and output together occurs, where the output is known."""
        return LengthHistogram.of(
            request.prompt_tokens + request.output_tokens
            for request in self.requests
            if request.output_tokens is not None
        )

    def split_by_length(self, max_model_len: int) -> tuple[Trace, tuple[TraceRequest, ...]]:
        """Return the trace without the requests that would be refused, and those.

        A prompt must leave room for one token of output: with 2048, one of 2047 tokens is the
        longest.
        """
        taken: list[TraceRequest] = []
        refused: list[TraceRequest] = []
        for request in self.requests:
            (taken if request.prompt_tokens < max_model_len else refused).append(request)
        return replace(self, requests=tuple(taken)), tuple(refused)
