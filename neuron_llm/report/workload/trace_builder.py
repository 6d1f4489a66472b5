"""From the rows of a trace file, one by one, to the trace. Knows no torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.workload.trace import BadRow, Trace, TraceRequest
from neuron_llm.report.workload.trace_formats import TRACE_FORMATS, TraceFormat, recognise_format
from neuron_llm.report.workload.trace_values import RowError, parse_count, parse_hash_ids, shown

_MAX_SHOWN_COLUMNS = 8


class TraceBuilder:
    """Collects the rows of a file.

    Args:
        path: the file, named in messages.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._format: TraceFormat | None = None
        self._block_size: int | None = None
        self._requests: list[TraceRequest] = []
        self._bad_rows: list[BadRow] = []

    def recognise(self, columns: Collection[str]) -> None:
        """Settle the file's format by its columns.

        Raises:
            NeuronLLMError: no known format has these columns, or one of them is there twice.
        """
        names = list(columns)
        self._format = recognise_format(names)
        if self._format is None:
            shown_names = [f"`{shown(name)}`" for name in names[:_MAX_SHOWN_COLUMNS]]
            more = ["..."] if len(names) > _MAX_SHOWN_COLUMNS else []
            raise NeuronLLMError(
                f"the trace `{self._path}` has unknown columns:"
                f" {', '.join(shown_names + more) or 'none'}",
                hint=known_columns(),
            )
        for name in self._format.read_columns:
            if names.count(name) > 1:
                raise NeuronLLMError(
                    f"the trace `{self._path}` has the column `{name}` twice",
                    hint="remove one of the two",
                )

    def add(self, line: int, fields: Mapping[str, object]) -> None:
        """Add a row, as a request if it is one; the first settles the format if nothing has yet.

        Args:
            line: where it stands, greater than those before.
            fields: values by column.

        Raises:
            NeuronLLMError: no known format has these columns.
        """
        if self._format is None:
            self.recognise(fields)
        assert self._format is not None
        try:
            self._requests.append(self._read_request(self._format, line, fields))
        except RowError as error:
            self.reject(line, str(error))

    def reject(self, line: int, reason: str) -> None:
        """Add a row that is none."""
        self._bad_rows.append(BadRow(line, reason))

    def build(self) -> Trace:
        """Return the trace.

        Raises:
            NeuronLLMError: there is no request in it.
        """
        if self._format is None or not self._requests:
            raise NeuronLLMError(
                f"the trace `{self._path}` has no usable row{self._why_none()}",
                hint=known_columns(),
            )
        arrivals = [request.arrival_s for request in self._requests]
        requests = sorted(self._requests, key=lambda request: request.arrival_s)
        first = requests[0].arrival_s
        if first:
            requests = [replace(r, arrival_s=r.arrival_s - first) for r in requests]
        return Trace(
            format_name=self._format.name,
            requests=tuple(requests),
            bad_rows=tuple(self._bad_rows),
            block_size=self._block_size,
            num_unsorted=sum(later < earlier for earlier, later in pairwise(arrivals)),
        )

    def _read_request(
        self, columns: TraceFormat, line: int, fields: Mapping[str, object]
    ) -> TraceRequest:
        arrival_s = 0.0
        if columns.arrival_column is not None:
            arrival_s = columns.read_arrival(
                columns.arrival_column, fields.get(columns.arrival_column)
            )
        name = columns.prompt_column
        prompt_tokens = parse_count(name, fields.get(name), minimum=1)
        output_tokens = _read_output(columns, fields)
        hash_ids = self._read_hash_ids(columns, fields, prompt_tokens)
        return TraceRequest(arrival_s, prompt_tokens, output_tokens, hash_ids, line)

    def _read_hash_ids(
        self, columns: TraceFormat, fields: Mapping[str, object], prompt_tokens: int
    ) -> tuple[int, ...]:
        name = columns.hash_ids_column
        value = fields.get(name)
        if value is None or value == "":
            return ()
        block_size = columns.block_size
        if block_size is None:
            block_size = parse_count("block_size", fields.get("block_size"), minimum=1)
        if block_size != (self._block_size or block_size):
            raise RowError(f"`block_size` is {block_size}, in lines above {self._block_size}")
        hash_ids = parse_hash_ids(name, value, prompt_tokens=prompt_tokens, block_size=block_size)
        self._block_size = block_size
        return hash_ids

    def _why_none(self) -> str:
        if not self._bad_rows:
            return ""
        first, num_more = self._bad_rows[0], len(self._bad_rows) - 1
        more = f", and {num_more} more" if num_more else ""
        return f": {first.reason} (line {first.line}{more})"


def known_columns() -> str:
    """Return which columns a trace file may have, as a hint."""
    known = (f"{known.name}: `{','.join(known.columns)}`" for known in TRACE_FORMATS)
    return "\n".join(["a trace is CSV with a header, or JSON lines, with the columns of", *known])


def _read_output(columns: TraceFormat, fields: Mapping[str, object]) -> int | None:
    name = columns.output_column
    value = fields.get(name)
    if value is None or value == "":
        return None
    output_tokens = parse_count(name, value, minimum=0)
    if output_tokens == 0 and columns.fails_without_output:
        raise RowError(f"`{name}` is 0: the request failed")
    return output_tokens
