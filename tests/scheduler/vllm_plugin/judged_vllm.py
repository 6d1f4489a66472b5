"""vLLM's schedulers as the judge and the random streams expect a scheduler to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from judge import JudgeWorker
from streams import Stream, StreamRun, random_stream
from vllm_factory import (
    kv_cache_manager,
    make_vllm_output,
    make_vllm_request,
    make_vllm_scheduler,
    requests,
)

from neuron_llm.scheduler import (
    CachedRequestData,
    EngineCoreOutput,
    FinishReason,
    ModelRunnerOutput,
    NewRequestData,
    Request,
    RequestStatus,
    SchedulerConfig,
    SchedulerOutput,
)


class JudgedKV:
    """vLLM's block pool, counted."""

    def __init__(self, kv_cache_manager: Any) -> None:
        self._manager = kv_cache_manager
        self.block_pool = self
        self.num_usable_blocks = kv_cache_manager.block_pool.num_gpu_blocks - 1

    @property
    def num_free_blocks(self) -> int:
        count: int = self._manager.block_pool.get_num_free_blocks()
        return count

    def check_integrity(self) -> None:
        tables = self._manager.coordinator.single_type_managers[0].req_to_blocks
        held = Counter(block.block_id for table in tables.values() for block in table)
        blocks = self._manager.block_pool.blocks
        assert all(held[b.block_id] == b.ref_cnt for b in blocks if not b.is_null)


class JudgedVllm:
    """Speaks our requests and outputs, and lets a scheduler of vLLM decide."""

    def __init__(self, vllm_class: Any, config: SchedulerConfig) -> None:
        self.vllm = make_vllm_scheduler(vllm_class, config)
        self.config = config
        self.kv_cache_manager = JudgedKV(self.vllm.kv_cache_manager)
        self._ours: dict[str, Request] = {}
        self._theirs: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.vllm, name)

    @property
    def running(self) -> list[Request]:
        return [self._ours[request.request_id] for request in self.vllm.running]

    @property
    def waiting(self) -> list[Request]:
        return [self._ours[request.request_id] for request in self.vllm.waiting]

    def add_request(self, request: Request) -> None:
        self._ours[request.request_id] = request
        self.vllm.add_request(make_vllm_request(request, self.config.block_size))

    def finish_requests(self, request_id: str, status: RequestStatus) -> list[Any]:
        assert status is RequestStatus.FINISHED_ABORTED
        ended: list[Any] = self.vllm.finish_requests(
            request_id, requests.RequestStatus.FINISHED_ABORTED
        )
        return ended

    def schedule(self) -> SchedulerOutput:
        theirs = self.vllm.schedule()
        ours = to_our_output(theirs)
        self._theirs[id(ours)] = theirs
        return ours

    def update_from_output(
        self, scheduler_output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> list[EngineCoreOutput]:
        theirs = self._theirs.pop(id(scheduler_output))
        result = make_vllm_output(runner_output.req_ids, runner_output.sampled_token_ids)
        by_client = self.vllm.update_from_output(theirs, result)
        return [
            EngineCoreOutput(
                output.request_id,
                output.new_token_ids,
                finish_reason=to_our_reason(output.finish_reason),
                stop_reason=output.stop_reason,
            )
            for outputs in by_client.values()
            for output in outputs.outputs
        ]


def to_our_reason(theirs: Any) -> FinishReason | None:
    # Not by its truth: "stop" is number 0.
    return None if theirs is None else FinishReason(str(theirs))


def to_our_output(theirs: Any) -> SchedulerOutput:
    cached = theirs.scheduled_cached_reqs
    assert not theirs.preempted_req_ids, "somebody was preempted"
    return SchedulerOutput(
        scheduled_new_reqs=[
            NewRequestData(
                req_id=new.req_id,
                prompt_token_ids=new.prompt_token_ids,
                block_ids=list(new.block_ids[0]),
                num_computed_tokens=new.num_computed_tokens,
            )
            for new in theirs.scheduled_new_reqs
        ],
        scheduled_cached_reqs=CachedRequestData(
            req_ids=list(cached.req_ids),
            new_block_ids=[list(ids[0]) if ids else [] for ids in cached.new_block_ids],
            num_computed_tokens=list(cached.num_computed_tokens),
            num_output_tokens=list(cached.num_output_tokens),
        ),
        num_scheduled_tokens=dict(theirs.num_scheduled_tokens),
        total_num_scheduled_tokens=theirs.total_num_scheduled_tokens,
        finished_req_ids=set(theirs.finished_req_ids),
        num_scheduled_tokens_padded=getattr(theirs, "num_scheduled_tokens_padded", None),
    )


@dataclass(frozen=True)
class StepTrace:
    """What a step decided; two schedulers that agree on it run the same graphs.

    Attributes:
        num_tokens: real tokens of each request, in batch order.
        padded: tensor sizes, None from a scheduler without buckets.
        starts: where each request's tokens start; prefix hits show here.
        tables: block tables, each block named by when a table first had it.
    """

    num_tokens: list[tuple[str, int]]
    padded: dict[str, int] | None
    starts: dict[str, int]
    tables: dict[str, list[int]]

    @property
    def has_shared_block(self) -> bool:
        block_ids = [block_id for table in self.tables.values() for block_id in table]
        return len(set(block_ids)) < len(block_ids)


class Tracer:
    """Keeps the block tables, as a worker would, and describes each step."""

    def __init__(self) -> None:
        self._tables: dict[str, list[int]] = {}

    def take(self, output: SchedulerOutput) -> StepTrace:
        for req_id in output.finished_req_ids:
            self._tables.pop(req_id, None)
        cached = output.scheduled_cached_reqs
        starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for req_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            self._tables[req_id] += block_ids
        for new in output.scheduled_new_reqs:
            self._tables[new.req_id] = list(new.block_ids)
            starts[new.req_id] = new.num_computed_tokens
        names: dict[int, int] = {}
        tables = {
            req_id: [names.setdefault(block_id, len(names)) for block_id in block_ids]
            for req_id, block_ids in self._tables.items()
        }
        num_tokens = list(output.num_scheduled_tokens.items())
        return StepTrace(num_tokens, output.num_scheduled_tokens_padded, starts, tables)


class TracedRun(StreamRun):
    """One stream over a scheduler of ours or of vLLM's; `trace` holds its steps."""

    def __init__(
        self, stream: Stream, make_scheduler: Callable[..., Any], max_steps_in_flight: int
    ) -> None:
        super().__init__(stream, make_scheduler)  # type: ignore[arg-type] # any callable will do
        self.max_steps_in_flight = max_steps_in_flight
        self.trace: list[StepTrace] = []
        self._tracer = Tracer()

    def check_step(self, output: SchedulerOutput) -> None:
        super().check_step(output)
        self.trace.append(self._tracer.take(output))


class AnyPhaseWorker(JudgeWorker):
    """Takes batches of both phases, as a base scheduler makes them."""

    def _check_batch(self, output: SchedulerOutput, starts: dict[str, int]) -> None:
        pass


class BaseRun(TracedRun):
    """One stream over a scheduler without the holdback logic."""

    def __init__(self, stream: Stream, make_scheduler: Any, max_steps_in_flight: int) -> None:
        super().__init__(stream, make_scheduler, max_steps_in_flight)
        self.worker = AnyPhaseWorker(stream.config, stream.vocab_size)

    def check_step(self, output: SchedulerOutput) -> None:
        self.trace.append(self._tracer.take(output))


def has_our_eviction_order() -> bool:
    """Whether vLLM reuses blocks that nobody can find again first, as ours does (0.31 and later).

    Before, the two evict different blocks and so find different prefixes in the same stream.
    """
    return hasattr(kv_cache_manager.KVCacheManager, "record_prefix_cache_stats")


def vllm_stream(seed: int, **changes: Any) -> Stream:
    """Return the seed's stream as vLLM can take it.

    vLLM wants a token budget of at least `max_num_seqs`, room in the KV cache for a request of
    `max_model_len`, and ids that never come back; `min_tokens` is its sampler's matter.
    """
    limits = random_stream(seed, **changes).config
    num_batched_tokens = max(limits.max_num_batched_tokens, limits.max_num_seqs)
    blocks_per_seq = -(-limits.max_model_len // limits.block_size)
    changes = {
        "max_num_batched_tokens": num_batched_tokens,
        "num_blocks": max(limits.num_blocks, blocks_per_seq + 1),
        "max_num_seqs": limits.max_num_seqs,
        "max_model_len": limits.max_model_len,
        "block_size": limits.block_size,
        "kv_admission": limits.kv_admission,
        **changes,
    }
    stream = random_stream(seed, **changes)
    owners: dict[str, list[str]] = {}
    steps = sorted({*stream.arrivals, *stream.aborts})
    for step in steps:
        aborted = [
            i for request_id in stream.aborts.get(step, []) for i in owners.get(request_id, [])
        ]
        if step in stream.aborts:
            stream.aborts[step] = aborted
        for index, request in enumerate(stream.arrivals.get(step, [])):
            ids = owners.setdefault(request.request_id, [])
            unique = f"{request.request_id}.{len(ids)}"
            ids.append(unique)
            stream.arrivals[step][index] = replace(request, request_id=unique, min_tokens=0)
    return stream
