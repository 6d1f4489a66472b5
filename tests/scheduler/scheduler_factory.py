"""Small schedulers, real requests, and the loop around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from neuron_llm.scheduler import (
    EngineCoreOutput,
    FinishReason,
    ModelRunnerOutput,
    NeuronScheduler,
    Request,
    Scheduler,
    SchedulerConfig,
    SchedulerOutput,
)

EOS_TOKEN_ID = 2
PLAIN_TOKEN_ID = 7

AnyScheduler = TypeVar("AnyScheduler", bound=Scheduler)


def make_config(**changes: Any) -> SchedulerConfig:
    """Return limits of the test model: 64 tokens, blocks of 4, prefill buckets 8 and 16."""
    values: dict[str, Any] = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "max_model_len": 64,
        "block_size": 4,
        "num_blocks": 65,
        **changes,
    }
    if "num_batched_tokens_buckets" not in values:
        largest = min(values["max_num_batched_tokens"], values["max_model_len"])
        values["num_batched_tokens_buckets"] = (8, largest) if largest > 8 else (largest,)
    return SchedulerConfig(**values)


def make_scheduler(scheduler_class: type[AnyScheduler], **changes: Any) -> AnyScheduler:
    return scheduler_class(make_config(**changes))


def make_base(**changes: Any) -> Scheduler:
    limits = {
        "max_num_seqs": 16,
        "max_num_batched_tokens": 1024,
        "max_model_len": 2048,
        "block_size": 16,
        "num_blocks": 1000,
    }
    return make_scheduler(Scheduler, **{**limits, **changes})


def make_neuron(**changes: Any) -> NeuronScheduler:
    return make_scheduler(NeuronScheduler, **changes)


def make_request(
    request_id: str = "r0",
    prompt_len: int = 5,
    *,
    prompt: Sequence[int] | None = None,
    max_tokens: int = 4,
    **fields: Any,
) -> Request:
    """Return a request; prompts made from a length differ from one id to the next."""
    if prompt is None:
        first = 1000 * (1 + sum(map(ord, request_id)) % 1000)
        prompt = range(first, first + prompt_len)
    return Request(request_id, list(prompt), max_tokens, **fields)


def add_requests(scheduler: Scheduler, *requests: Request) -> None:
    for request in requests:
        scheduler.add_request(request)


def has_anything_to_say(scheduler: Scheduler) -> bool:
    """Whether a step would tell the runner anything, be it only that requests have finished."""
    return bool(scheduler.requests or scheduler.finished_req_ids)


def run_step(output: SchedulerOutput, scheduler: Scheduler, token_id: int) -> ModelRunnerOutput:
    """Return what a runner would: `token_id` for every request past its prompt."""
    sampled = []
    cached = output.scheduled_cached_reqs
    starts = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    starts |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    for req_id, num_tokens in output.num_scheduled_tokens.items():
        request = scheduler.requests.get(req_id)
        is_partial = request and starts[req_id] + num_tokens < request.num_prompt_tokens
        sampled.append([] if is_partial else [token_id])
    return ModelRunnerOutput(list(output.num_scheduled_tokens), sampled)


@dataclass
class Step:
    """One step and what came of it."""

    scheduled: SchedulerOutput
    outputs: list[EngineCoreOutput]

    @property
    def num_tokens(self) -> dict[str, int]:
        return self.scheduled.num_scheduled_tokens


def step(scheduler: Scheduler, token_id: int = PLAIN_TOKEN_ID) -> Step:
    """Schedule, run and update once."""
    output = scheduler.schedule()
    result = run_step(output, scheduler, token_id)
    return Step(output, scheduler.update_from_output(output, result))


def run_to_end(scheduler: Scheduler, token_id: int = PLAIN_TOKEN_ID) -> list[Step]:
    """Step until nothing is left to say."""
    steps = []
    while has_anything_to_say(scheduler):
        steps.append(step(scheduler, token_id))
        assert len(steps) < 10_000, "the scheduler never ends"
    return steps


def ends(steps: list[Step]) -> dict[str, FinishReason]:
    """Return why each request ended; each exactly once."""
    found = [(o.request_id, o.finish_reason) for s in steps for o in s.outputs if o.finish_reason]
    assert len(dict(found)) == len(found)
    return {request_id: reason for request_id, reason in found if reason}
