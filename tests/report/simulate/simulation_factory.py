"""Small workloads, candidates and step times for simulations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.report.simulate.simulation import Simulation
from neuron_llm.report.simulate.simulator import simulate
from neuron_llm.report.step_time.step_times import StepTime, StepTimeSource
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.report.workload.workload import Workload
from neuron_llm.scheduler import BucketSet, DecodeBucket, PrefillBucket, SchedulerConfig
from neuron_llm.scheduler.buckets import Bucket
from neuron_llm.scheduler.step_record import StepRecord

MAX_MODEL_LEN = 64


class TokenTimes:
    """A prefill takes 1 s and 1/8 s per token of its bucket, a decode 1/2 s and 1/16 s per row.

    So all sums are exact.
    """

    def step_time(self, bucket: Bucket) -> StepTime:
        if isinstance(bucket, PrefillBucket):
            return StepTime(1 + bucket.num_tokens / 8, StepTimeSource.MEASURED)
        return StepTime(0.5 + bucket.batch_size / 16, StepTimeSource.ESTIMATED)


def make_trace(
    *requests: tuple[float, int, int | None], hash_ids: Sequence[tuple[int, ...]] = ()
) -> Trace:
    """Return a trace of arrivals, prompts and outputs; with hash ids, of blocks of 4."""
    ids = hash_ids or [()] * len(requests)
    traced = [
        TraceRequest(*request, hash_ids=each, line=line)
        for line, (request, each) in enumerate(zip(requests, ids, strict=True), start=2)
    ]
    return Trace("neuron-llm", tuple(traced), (), 4 if hash_ids else None, 0)


def make_buckets(
    prefill: Sequence[int] = (8, 16),
    seqs: Sequence[int] = (1, 2, 4),
    contexts: Sequence[int] = (MAX_MODEL_LEN,),
) -> BucketSet:
    return BucketSet(
        prefill=tuple(PrefillBucket(size) for size in prefill),
        decode=tuple(DecodeBucket(rows, context) for rows in seqs for context in contexts),
    )


def make_candidate(
    buckets: BucketSet | None = None, *, async_scheduling: bool = False, **changes: Any
) -> Candidate:
    """Return a candidate of 64 tokens, 4 requests, and prefill buckets of 8 and 16."""
    buckets = buckets or make_buckets()
    sizes = tuple(buckets.num_batched_tokens_buckets)
    values: dict[str, Any] = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": sizes[-1],
        "max_model_len": MAX_MODEL_LEN,
        "block_size": 4,
        "num_blocks": 65,
        "num_batched_tokens_buckets": sizes,
        **changes,
    }
    return Candidate("made up", SchedulerConfig(**values), buckets, async_scheduling)


def run_steps(
    workload: Workload | Trace, candidate: Candidate | None = None
) -> tuple[Simulation, list[StepRecord]]:
    """Simulate, and return the steps too."""
    if isinstance(workload, Trace):
        workload = Workload(workload)
    steps: list[StepRecord] = []
    simulation = simulate(workload, candidate or make_candidate(), TokenTimes(), steps.append)
    return simulation, steps
