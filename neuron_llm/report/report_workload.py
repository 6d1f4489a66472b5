"""The workload of a report: what is computed of it, and what is refused. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from neuron_llm.compile.plan.plan import CompilePlan
from neuron_llm.report.run.logged_prompts import LoggedPrompts
from neuron_llm.report.workload.length_histogram import LengthBin, LengthHistogram
from neuron_llm.report.workload.prefix_hits import PrefillWork, all_computed, computed_after_hits
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.report.workload.workload import Workload, median_output_tokens
from neuron_llm.scheduler.block_pool import ceil_div
from neuron_llm.scheduler.buckets import get_default_num_batched_tokens_buckets

ASSUMED_OUTPUT_TOKENS = 128
"""What a request is taken to generate where nothing at all is known of any."""


class WorkloadSource(StrEnum):
    """Where a workload comes from."""

    PROMPTS = "prompts"
    TRACE = "trace"
    LAST_RUN = "last_run"


@dataclass(frozen=True, kw_only=True)
class ReportWorkload:
    """Requests, measured by the limits of a plan.

    Attributes:
        source: where they come from.
        name: the file, or when the run was.
        trace: those that can run.
        refused: those whose prompt leaves no room for output within `max_model_len`, by arrival.
        work: what the prefix cache leaves to compute of each prompt of `trace`.
        assumed_output_tokens: of each request whose output is not known.
        block_size: tokens of a block of the KV cache.
        max_chunk_tokens: most tokens of one prefill step.
    """

    source: WorkloadSource
    name: str
    trace: Trace
    refused: tuple[TraceRequest, ...]
    work: PrefillWork
    assumed_output_tokens: int
    block_size: int
    max_chunk_tokens: int

    @cached_property
    def lengths(self) -> LengthHistogram:
        """How often each number of tokens has to be computed."""
        return self.work.lengths

    @cached_property
    def all_prompt_lengths(self) -> LengthHistogram:
        """How often each length of a prompt occurs, refused ones included."""
        prompts = (*self.trace.requests, *self.refused)
        return LengthHistogram.of(request.prompt_tokens for request in prompts)

    @property
    def num_chunked_prompts(self) -> int:
        """Prompts that need several chunks."""
        return self.lengths.num_above(self.max_chunk_tokens)

    @property
    def max_chunks(self) -> int:
        """Chunks of the longest prompt."""
        return ceil_div(self.lengths.longest, self.max_chunk_tokens)

    @cached_property
    def num_block_padded_tokens(self) -> int:
        """Slots in the last KV block of each prompt that hold nothing when it has been computed.

        With blocks of 16, a prompt of 20 tokens holds two blocks, and 12 slots of them are empty.
        """
        size = self.block_size
        return sum(-request.prompt_tokens % size for request in self.trace.requests)

    @property
    def simulated(self) -> Workload:
        """The requests as a simulation takes them."""
        return Workload(self.trace, self.assumed_output_tokens)

    def bins(self, buckets: Sequence[int]) -> list[LengthBin]:
        """Return how many prompts each bucket, and each power of two above, would hold whole."""
        beyond = get_default_num_batched_tokens_buckets(max(self.all_prompt_lengths.longest, 1))
        return self.all_prompt_lengths.bins(
            [*buckets, *(size for size in beyond[:-1] if size > buckets[-1])]
        )

    def to_json(self, buckets: Sequence[int]) -> dict[str, Any]:
        """Return sums, lengths and every request and row that is left out as JSON keys and values.

        Args:
            buckets: edges of the histogram, ascending.
        """
        return {
            "source": self.source.value,
            "name": self.name,
            "format": self.trace.format_name,
            "num_prompts": len(self.trace.requests),
            "num_cached_tokens": sum(self.work.num_cached_tokens),
            "num_chunked_prompts": self.num_chunked_prompts,
            "max_chunks": self.max_chunks,
            "num_block_padded_tokens": self.num_block_padded_tokens,
            "assumed_output_tokens": self.assumed_output_tokens,
            "num_assumed_outputs": self.simulated.num_assumed,
            "num_refused": len(self.refused),
            "refused": [
                {"line": request.line, "prompt_tokens": request.prompt_tokens}
                for request in self.refused
            ],
            "num_bad_rows": len(self.trace.bad_rows),
            "bad_rows": [{"line": row.line, "reason": row.reason} for row in self.trace.bad_rows],
            "num_unsorted": self.trace.num_unsorted,
            "prompt_lengths": self.all_prompt_lengths.to_json(),
            "computed_lengths": self.lengths.to_json(),
            "total_lengths": self.trace.total_lengths.to_json(),
            "prompt_histogram": [vars(each) for each in self.bins(buckets)],
            "total_histogram": [vars(each) for each in self.trace.total_lengths.bins(buckets)],
        }


def workload_of_trace(
    trace: Trace,
    plan: CompilePlan,
    source: WorkloadSource,
    name: str,
    assumed_output_tokens: int | None,
) -> ReportWorkload:
    """Return the requests of a trace or of a prompts file as a plan would serve them.

    Args:
        trace: the requests.
        plan: whose prefix cache and limits count.
        source: where the trace comes from.
        name: the file.
        assumed_output_tokens: of each request that does not say; None for the median of those that
            do, and `ASSUMED_OUTPUT_TOKENS` if none does.
    """
    taken, refused = trace.split_by_length(plan.max_model_len)
    if plan.enable_prefix_caching:
        cache_tokens = (plan.num_blocks - 1) * plan.block_size
        work = computed_after_hits(taken, block_size=plan.block_size, cache_tokens=cache_tokens)
    else:
        work = all_computed(taken)
    return ReportWorkload(
        source=source,
        name=name,
        trace=taken,
        refused=refused,
        work=work,
        assumed_output_tokens=(
            assumed_output_tokens or median_output_tokens(taken) or ASSUMED_OUTPUT_TOKENS
        ),
        block_size=plan.block_size,
        max_chunk_tokens=plan.max_num_batched_tokens,
    )


def workload_of_run(
    prompts: LoggedPrompts, plan: CompilePlan, name: str, assumed_output_tokens: int | None
) -> ReportWorkload:
    """Return the requests of a run as its log has them; the cached tokens are those of the run.

    Args:
        prompts: from the log.
        plan: of the artifact that ran.
        name: when the run was.
        assumed_output_tokens: of each request; None for the mean of the run.
    """
    return ReportWorkload(
        source=WorkloadSource.LAST_RUN,
        name=name,
        trace=prompts.trace(),
        refused=(),
        work=prompts.work,
        assumed_output_tokens=assumed_output_tokens or prompts.mean_output_tokens,
        block_size=plan.block_size,
        max_chunk_tokens=plan.max_num_batched_tokens,
    )
