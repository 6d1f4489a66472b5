"""A step between scheduler and clock: which graph it runs and what it samples. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neuron_llm.report.workload.arrivals import END_TOKEN_ID
from neuron_llm.scheduler import (
    BucketSet,
    DecodeBucket,
    ModelRunnerOutput,
    NeuronScheduler,
    PrefillBucket,
    SchedulerOutput,
    SchedulerState,
    get_bucket_for_count,
)
from neuron_llm.scheduler.buckets import Bucket
from neuron_llm.scheduler.step_record import StepRecord

_TOKEN_ID = -2
"""Any sampled token but the one that ends a request; no prompt has it, so no prefix hits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """A step that has been scheduled.

    Attributes:
        output: the scheduler's.
        sampled: what its requests get.
        record: the graph, the real tokens, and the seconds that it takes.
        longest: tokens of a decode's longest row, its own included; 0 of a prefill.
        is_last_chunk: whether a prefill ends its prompt.
    """

    output: SchedulerOutput
    sampled: ModelRunnerOutput
    record: StepRecord
    longest: int
    is_last_chunk: bool

    @property
    def is_prefill(self) -> bool:
        """Whether it computes a prompt."""
        return not self.longest


class StepMaker:
    """Does what the model runner does for a step, without a model.

    Args:
        buckets: the graphs.
        seconds: of a step of each.

    Attributes:
        ends: of each request that asked for more tokens than it generates, how many it generates.
    """

    def __init__(self, buckets: BucketSet, seconds: Mapping[Bucket, float]) -> None:
        self.ends: dict[str, int] = {}
        self._seconds = seconds
        self._num_seqs_buckets = buckets.num_seqs_buckets
        # Every batch size has the same contexts.
        self._contexts = sorted({bucket.max_context_tokens for bucket in buckets.decode})

    def make(self, scheduler: NeuronScheduler, output: SchedulerOutput) -> SimulatedStep:
        """Return the step that the scheduler has just planned."""
        if scheduler.state is SchedulerState.ACTIVE_PREFILL:
            return self._make_prefill(scheduler, output)
        return self._make_decode(output)

    def _make_prefill(self, scheduler: NeuronScheduler, output: SchedulerOutput) -> SimulatedStep:
        ((req_id, num_tokens),) = output.num_scheduled_tokens.items()
        num_cached_tokens = sum(new.num_computed_tokens for new in output.scheduled_new_reqs)
        first = sum(output.scheduled_cached_reqs.num_computed_tokens) + num_cached_tokens
        assert output.num_scheduled_tokens_padded is not None
        bucket = PrefillBucket(output.num_scheduled_tokens_padded[req_id])
        is_last = first + num_tokens >= scheduler.requests[req_id].num_prompt_tokens
        token_ids = [self._token_id(req_id, 0)] if is_last else []
        record = StepRecord(
            bucket=bucket,
            num_seqs=1,
            num_tokens=num_tokens,
            num_context_tokens=first + num_tokens,
            num_cached_tokens=num_cached_tokens,
            seconds=self._seconds[bucket],
        )
        return SimulatedStep(
            output=output,
            sampled=ModelRunnerOutput([req_id], [token_ids]),
            record=record,
            longest=0,
            is_last_chunk=is_last,
        )

    def _make_decode(self, output: SchedulerOutput) -> SimulatedStep:
        rows = output.scheduled_cached_reqs
        num_seqs, longest = rows.num_reqs, max(rows.num_computed_tokens) + 1
        bucket = self._pick_decode_bucket(num_seqs, longest)
        num_context_tokens = num_seqs + sum(rows.num_computed_tokens)
        if self.ends:
            pairs = zip(rows.req_ids, rows.num_output_tokens, strict=True)
            token_ids = [[self._token_id(req_id, before)] for req_id, before in pairs]
        else:
            token_ids = [[_TOKEN_ID]] * num_seqs
        record = StepRecord(
            bucket=bucket,
            num_seqs=num_seqs,
            num_tokens=num_seqs,
            num_context_tokens=num_context_tokens,
            num_cached_tokens=0,
            seconds=self._seconds[bucket],
        )
        return SimulatedStep(
            output=output,
            sampled=ModelRunnerOutput(rows.req_ids, token_ids),
            record=record,
            longest=longest,
            is_last_chunk=False,
        )

    def _pick_decode_bucket(self, num_seqs: int, longest: int) -> DecodeBucket:
        """As `BucketSet` picks it, whose lists are made anew for each step."""
        return DecodeBucket(
            get_bucket_for_count(num_seqs, self._num_seqs_buckets),
            get_bucket_for_count(longest, self._contexts),
        )

    def _token_id(self, req_id: str, num_before: int) -> int:
        return END_TOKEN_ID if self.ends.get(req_id) == num_before + 1 else _TOKEN_ID
