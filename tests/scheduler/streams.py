"""Random request streams, and the run that judges a scheduler by one."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from judge import JudgeWorker, expected_output
from scheduler_factory import has_anything_to_say, make_config

from neuron_llm.errors import RequestError
from neuron_llm.scheduler import (
    EngineCoreOutput,
    FinishReason,
    NeuronAsyncScheduler,
    NeuronScheduler,
    Request,
    RequestStatus,
    SchedulerConfig,
    SchedulerOutput,
    SchedulerState,
)
from neuron_llm.scheduler.async_scheduler import AsyncScheduler
from neuron_llm.scheduler.policy.admission import worst_case_blocks

EOS_TOKEN_ID = 0
STOP_TOKEN_ID = 1


@dataclass
class Stream:
    """A config and what happens to it, by step."""

    config: SchedulerConfig
    vocab_size: int
    fills_model_len: bool
    arrivals: dict[int, list[Request]] = field(default_factory=dict)
    aborts: dict[int, list[str]] = field(default_factory=dict)

    @property
    def last_event(self) -> int:
        return max([0, *self.arrivals, *self.aborts])


def random_stream(seed: int, **changes: Any) -> Stream:
    """Return a small stream that crowds its limits; the same seed gives the same stream."""
    rng = random.Random(seed)
    config = _random_config(rng, changes)
    stream = Stream(config, rng.choice([6, 20, 200]), fills_model_len=rng.random() < 0.3)
    prompts: list[list[int]] = [[]]
    step = 0
    for index in range(rng.choice([1, 4, 10, 20])):
        step += rng.choice([0, 0, 0, 1, 3, 9])
        request = _random_request(rng, stream, prompts, f"r{index % rng.choice([3, 100, 100])}")
        stream.arrivals.setdefault(step, []).append(request)
        if rng.random() < 0.15:
            abort_step = step + rng.randint(0, 12)
            stream.aborts.setdefault(abort_step, []).append(request.request_id)
            if rng.random() < 0.5:
                # The id comes back while the step of its first owner is still in flight.
                successor = _random_request(rng, stream, prompts, request.request_id)
                stream.arrivals.setdefault(abort_step, []).append(successor)
    return stream


def _random_config(rng: random.Random, changes: dict[str, Any]) -> SchedulerConfig:
    values: dict[str, Any] = {
        "max_num_seqs": rng.choice([1, 2, 3, 4, 8]),
        "max_num_batched_tokens": rng.choice([1, 3, 8, 16, 100]),
        "max_model_len": rng.choice([2, 24, 32, 33, 48, 64]),
        "block_size": rng.choice([1, 2, 4, 4, 8]),
        "enable_prefix_caching": rng.random() < 0.8,
        "kv_admission": rng.choice(["reserve", "reserve", "max_model_len"]),
        "max_consecutive_prefills": rng.choice([None, None, 1, 2, 5]),
        **changes,
    }
    blocks_per_seq = -(-values["max_model_len"] // values["block_size"])
    # Exact multiples, one more and one less are where the null block is forgotten.
    num_blocks = blocks_per_seq * rng.choice([1, 1, 2, 2, 3, 6]) + rng.choice([0, 0, 1, 1, 2])
    least = 2 if values["kv_admission"] == "reserve" else blocks_per_seq + 1
    values.setdefault("num_blocks", max(num_blocks, least))
    largest = min(values["max_num_batched_tokens"], values["max_model_len"])
    smaller = sorted(b for b in {2, 5, 8, 13} if b < largest and rng.random() < 0.5)
    values["num_batched_tokens_buckets"] = (*smaller, largest)
    return make_config(**values)


def _random_request(
    rng: random.Random, stream: Stream, prompts: list[list[int]], request_id: str
) -> Request:
    """Return a request; its prompt often begins like an earlier prompt or conversation."""
    limit = stream.config.max_model_len - 1
    base = rng.choice(prompts[-12:])
    prompt = base[: rng.choice([len(base), rng.randint(0, len(base))])]
    num_new_tokens = rng.choice([0, 1, 4, 9, rng.randint(0, 40), limit])
    prompt = prompt + [rng.randrange(100) for _ in range(num_new_tokens)]
    prompt = prompt[:limit] or [5]
    max_tokens = limit if stream.fills_model_len else rng.choice([1, 2, 3, rng.randint(1, 30)])
    request = Request(
        request_id,
        prompt,
        max_tokens=max_tokens,
        min_tokens=rng.choice([0, 0, 0, rng.randint(0, max_tokens)]),
        eos_token_ids=frozenset({EOS_TOKEN_ID}),
        stop_token_ids=frozenset(rng.choice([set(), {STOP_TOKEN_ID}])),
        ignore_eos=stream.fills_model_len or rng.random() < 0.2,
        cache_salt=rng.choice([None, None, None, "salt"]),
    )
    answer, _, _ = expected_output(request, stream.config.max_model_len, stream.vocab_size)
    prompts += [prompt, prompt + answer]
    return request


@dataclass
class _Record:
    request: Request
    is_aborted: bool = False
    output: list[int] = field(default_factory=list)
    ends: list[tuple[FinishReason, int | None]] = field(default_factory=list)


class StreamRun:
    """Runs one stream to its end and asserts every promise of the scheduler on the way."""

    def __init__(self, stream: Stream, scheduler_class: type[NeuronScheduler]) -> None:
        self.stream = stream
        self.scheduler = scheduler_class(stream.config)
        self.worker = JudgeWorker(stream.config, stream.vocab_size)
        self.max_steps_in_flight = 2 if isinstance(self.scheduler, AsyncScheduler) else 1
        self.in_flight: deque[SchedulerOutput] = deque()
        self.live: dict[str, _Record] = {}
        self.records: list[_Record] = []
        self.started: list[Request] = []

    def run(self) -> list[_Record]:
        step = 0
        while step <= self.stream.last_event or has_anything_to_say(self.scheduler):
            self._apply_events(step)
            output = self.scheduler.schedule()
            self.check_step(output)
            self.in_flight.append(output)
            if len(self.in_flight) >= self.max_steps_in_flight or not output.num_scheduled_tokens:
                self.finish_oldest_step()
            step += 1
            assert step < 3000, "hang"
            if not has_anything_to_say(self.scheduler):
                while self.in_flight:
                    self.finish_oldest_step()
        self._check_end()
        return self.records

    def _apply_events(self, step: int) -> None:
        for request_id in self.stream.aborts.get(step, []):
            if self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED):
                self.live.pop(request_id).is_aborted = True
                self.scheduler.kv_cache_manager.check_integrity()
        for request in self.stream.arrivals.get(step, []):
            self.add(request)

    def add(self, request: Request) -> None:
        config = self.stream.config
        needed = worst_case_blocks(request, config.max_model_len, config.block_size)
        refusal = None
        if needed > config.num_blocks - 1:
            refusal = "kv_too_small"
        elif request.request_id in self.live:
            refusal = "duplicate_request_id"
        try:
            self.scheduler.add_request(request)
        except RequestError as error:
            assert error.code == refusal
        else:
            assert refusal is None
            self.live[request.request_id] = _Record(request)
            self.records.append(self.live[request.request_id])

    def finish_oldest_step(self) -> None:
        output = self.in_flight.popleft()
        for core_output in self.scheduler.update_from_output(output, self.worker.execute(output)):
            self._take(core_output)
        self.scheduler.kv_cache_manager.check_integrity()

    def _take(self, core_output: EngineCoreOutput) -> None:
        record = self.live[core_output.request_id]
        assert core_output.new_token_ids, "an output without a token"
        assert core_output.num_cached_tokens < record.request.num_prompt_tokens
        record.output += core_output.new_token_ids
        if core_output.finish_reason is not None:
            record.ends.append((core_output.finish_reason, core_output.stop_reason))
            del self.live[core_output.request_id]

    def check_step(self, output: SchedulerOutput) -> None:
        scheduler = self.scheduler
        scheduler.kv_cache_manager.check_integrity()
        assert scheduler.max_num_running_reqs == self.stream.config.max_num_seqs
        assert scheduler.max_num_scheduled_tokens == self.stream.config.max_num_batched_tokens
        assert not scheduler.holdback_queue, "requests stay behind in the holdback queue"
        assert len(scheduler.running) <= self.stream.config.max_num_seqs, "too many running"
        queued = [*scheduler.running, *scheduler.waiting]
        assert {r.request_id for r in queued} == set(scheduler.requests) == set(self.live)
        assert len(queued) == len(self.live), "a request is queued twice"
        self.started += [self.live[new.req_id].request for new in output.scheduled_new_reqs]
        # In the order of arrival, which is also the order of starting and of `running`.
        arrived = {id(record.request): index for index, record in enumerate(self.records)}
        for queue in (self.started, scheduler.running, scheduler.waiting):
            order = [arrived[id(request)] for request in queue]
            assert order == sorted(order), "somebody was overtaken"
        if output.num_scheduled_tokens:
            padded = output.num_scheduled_tokens_padded or {}
            is_prefill = bool(output.scheduled_new_reqs) or padded != output.num_scheduled_tokens
            assert not is_prefill or scheduler.state is SchedulerState.ACTIVE_PREFILL

    def _check_end(self) -> None:
        assert not self.live and not self.worker.known, "somebody was not told to end"
        pool = self.scheduler.kv_cache_manager.block_pool
        assert pool.num_free_blocks == pool.num_usable_blocks, "blocks leak"
        config = self.stream.config
        for record in self.records:
            expected = expected_output(record.request, config.max_model_len, self.stream.vocab_size)
            if record.is_aborted:
                assert record.output == expected[0][: len(record.output)] and not record.ends
            else:
                assert (record.output, record.ends) == (expected[0], [expected[1:]])


def run_stream(seed: int, scheduler_class: type[NeuronScheduler], **changes: Any) -> StreamRun:
    """Run the stream of a seed; an AssertionError or any other error is a verdict."""
    run = StreamRun(random_stream(seed, **changes), scheduler_class)
    run.run()
    return run


BOTH_CLASSES = (NeuronScheduler, NeuronAsyncScheduler)
