"""A trace together with what it does not say and a simulation has to know. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.workload.trace import Trace, TraceRequest


@dataclass(frozen=True)
class Workload:
    """Requests, and how many tokens each of them generates.

    A request generates at least one token, also where the trace says none: computing the prompt
    gives it.

    Attributes:
        trace: the requests.
        assumed_output_tokens: of each request whose output the trace does not know; None if it
            knows all.
        max_tokens: what each request asks for at most, if it generates no more than that anyway.
            Admission sets KV blocks aside for it. None for exactly what it generates.

    Raises:
        NeuronLLMError: an output is not known, and nothing is assumed.
    """

    trace: Trace
    assumed_output_tokens: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Check that every request's output is known or assumed."""
        assert self.assumed_output_tokens is None or self.assumed_output_tokens >= 1
        assert self.max_tokens is None or self.max_tokens >= 1
        if self.num_assumed and self.assumed_output_tokens is None:
            raise NeuronLLMError(
                f"{self.num_assumed} of {len(self.trace.requests)} requests of the trace do not say"
                " how many tokens they generate",
                hint="say how many to assume, such as the median of those that do",
            )

    @property
    def num_assumed(self) -> int:
        """Requests whose output the trace does not know."""
        return sum(request.output_tokens is None for request in self.trace.requests)

    def output_tokens(self, request: TraceRequest) -> int:
        """Return how many tokens a request generates, at least 1."""
        output_tokens = request.output_tokens
        if output_tokens is None:
            output_tokens = self.assumed_output_tokens
        assert output_tokens is not None
        return max(output_tokens, 1)

    def asked_tokens(self, request: TraceRequest) -> int:
        """Return how many tokens a request asks for at most."""
        return max(self.output_tokens(request), self.max_tokens or 1)

    @property
    def mean_context_tokens(self) -> int | None:
        """How many tokens a decoding request attends to on average, its own included.

        A prompt of 10 with an output of 3 decodes twice, with 11 and 12 tokens. None if no request
        decodes.
        """
        num_decodes = num_tokens = 0
        for request in self.trace.requests:
            num = self.output_tokens(request) - 1
            num_decodes += num
            num_tokens += num * request.prompt_tokens + num * (num + 1) // 2
        return round(num_tokens / num_decodes) if num_decodes else None


def median_output_tokens(trace: Trace) -> int | None:
    """Return the median of the outputs that a trace knows, at least 1; None if it knows none."""
    known = [r.output_tokens for r in trace.requests if r.output_tokens is not None]
    return max(median_low(known), 1) if known else None
