"""Trace formats: which columns tell them apart, and what each column means. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from neuron_llm.report.workload.trace_values import (
    parse_datetime,
    parse_milliseconds,
    parse_seconds,
)


@dataclass(frozen=True, kw_only=True)
class TraceFormat:
    """The columns of one kind of trace file; others that the file has are not read.

    Attributes:
        name: whose columns they are.
        columns: a file is of this format if it has all of them.
        prompt_column: tokens of the prompt.
        output_column: tokens of the output; may be empty.
        arrival_column: when the request came; None for a batch, where all come at once.
        read_arrival: turns the name and a value of that column into seconds.
        hash_ids_column: ids of the prompt's blocks; a file may lack it.
        block_size: tokens of those blocks; None where the column `block_size` says it.
        fails_without_output: an output of 0 tokens marks a failed request; elsewhere it is a prompt
            that wanted none.
    """

    name: str
    columns: tuple[str, ...]
    prompt_column: str
    output_column: str
    arrival_column: str | None = None
    read_arrival: Callable[[str, object], float] = parse_seconds
    hash_ids_column: str = "hash_ids"
    block_size: int | None = None
    fails_without_output: bool = False

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that a value may be read from."""
        block_size = () if self.block_size else ("block_size",)
        arrival = (self.arrival_column,) if self.arrival_column else ()
        return (
            self.prompt_column,
            self.output_column,
            *arrival,
            self.hash_ids_column,
            *block_size,
        )


OWN_FORMAT = TraceFormat(
    name="neuron-llm",
    columns=("arrival_s", "prompt_tokens", "output_tokens"),
    prompt_column="prompt_tokens",
    output_column="output_tokens",
    arrival_column="arrival_s",
)

TRACE_FORMATS = (
    OWN_FORMAT,
    TraceFormat(
        name="Azure",
        columns=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        prompt_column="ContextTokens",
        output_column="GeneratedTokens",
        arrival_column="TIMESTAMP",
        read_arrival=parse_datetime,
    ),
    TraceFormat(
        name="BurstGPT",
        columns=("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens"),
        prompt_column="Request tokens",
        output_column="Response tokens",
        arrival_column="Timestamp",
        fails_without_output=True,
    ),
    # Before Mooncake, whose columns it has too, in other units.
    TraceFormat(
        name="Qwen-Bailian",
        columns=("chat_id", "timestamp", "input_length", "output_length", "hash_ids"),
        prompt_column="input_length",
        output_column="output_length",
        arrival_column="timestamp",
        block_size=16,
    ),
    TraceFormat(
        name="Mooncake",
        columns=("timestamp", "input_length", "output_length", "hash_ids"),
        prompt_column="input_length",
        output_column="output_length",
        arrival_column="timestamp",
        read_arrival=parse_milliseconds,
        block_size=512,
    ),
    TraceFormat(
        name="ServeGen",
        columns=("request_id", "timestamp", "input_tokens", "output_tokens"),
        prompt_column="input_tokens",
        output_column="output_tokens",
        arrival_column="timestamp",
    ),
    TraceFormat(
        name="ServeGen offline",
        columns=("request_id", "type", "input_length"),
        prompt_column="input_length",
        output_column="output_length",
        block_size=16,
    ),
)
"""Every known format, the first that fits a file's columns is its own."""


def recognise_format(columns: Collection[str]) -> TraceFormat | None:
    """Return the format of a file with these columns, None if no known one has them."""
    present = frozenset(columns)
    fitting = (known for known in TRACE_FORMATS if present.issuperset(known.columns))
    return next(fitting, None)
