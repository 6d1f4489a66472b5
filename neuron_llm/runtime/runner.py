"""The model runner: from a scheduler's output to sampled tokens, through one graph.

It knows requests only by what `SchedulerOutput` says and by the tokens it sampled itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from neuron_llm.backends.inputs import GraphInputs, StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.protocol import Session
from neuron_llm.runtime.sampler import InvalidLogitsError, Sampler, SamplingState
from neuron_llm.runtime.sampling_params import SamplingParams
from neuron_llm.scheduler import (
    Bucket,
    BucketSet,
    ModelRunnerOutput,
    PrefillBucket,
    SchedulerOutput,
)
from neuron_llm.scheduler.step_record import StepRecord


@dataclass
class RunnerRequest:
    """What the runner keeps of a request.

    Attributes:
        token_ids: prompt and sampled tokens.
        num_prompt_tokens: how many of them are the prompt.
        block_ids: the block table.
    """

    token_ids: list[int]
    num_prompt_tokens: int
    block_ids: list[int]


@dataclass(frozen=True)
class _Row:
    """A request's share of the step that is being run."""

    req_id: str
    tokens: StepTokens
    is_partial: bool


class ModelRunner:
    """Runs one graph per step.

    Args:
        session: the loaded graphs.
        buckets: the graphs that exist.
        sampler: picks the tokens.
        max_model_len: width of the prefill block table, in tokens.
        block_size: tokens per KV block.
        on_step: told what each step cost.
    """

    def __init__(
        self,
        session: Session,
        buckets: BucketSet,
        sampler: Sampler,
        *,
        max_model_len: int,
        block_size: int,
        on_step: Callable[[StepRecord], None],
    ) -> None:
        self.session = session
        self.buckets = buckets
        self.sampler = sampler
        self.max_model_len = max_model_len
        self.block_size = block_size
        self.on_step = on_step
        self.requests: dict[str, RunnerRequest] = {}
        self.sampling_states: dict[str, SamplingState] = {}
        self.failures: dict[str, InvalidLogitsError] = {}

    def add_sampling(self, req_id: str, params: SamplingParams) -> None:
        """Say how a request's tokens are picked, before its first step."""
        self.sampling_states[req_id] = self.sampler.new_state(req_id, params)

    def remove_sampling(self, req_id: str) -> None:
        """Forget how a request's tokens are picked, once it has finished."""
        self.sampling_states.pop(req_id, None)

    @torch.inference_mode()
    def execute(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """Run a step.

        A request whose logits are no numbers gets no token; `failures` names it.
        """
        self._update_requests(scheduler_output)
        rows = self._rows(scheduler_output)
        if not rows:
            return ModelRunnerOutput([], [])
        bucket, inputs = self._prepare(scheduler_output, rows)
        started = time.perf_counter()
        logits = self.session.execute(bucket, inputs)
        self.on_step(self._record(scheduler_output, bucket, rows, time.perf_counter() - started))
        return self._sample(logits, rows)

    def _update_requests(self, scheduler_output: SchedulerOutput) -> None:
        for req_id in scheduler_output.finished_req_ids:
            self.requests.pop(req_id, None)
        for new in scheduler_output.scheduled_new_reqs:
            self.requests[new.req_id] = RunnerRequest(
                list(new.prompt_token_ids), len(new.prompt_token_ids), list(new.block_ids)
            )
        cached = scheduler_output.scheduled_cached_reqs
        for req_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            self.requests[req_id].block_ids.extend(block_ids)

    def _rows(self, scheduler_output: SchedulerOutput) -> list[_Row]:
        cached = scheduler_output.scheduled_cached_reqs
        num_computed = {
            **{new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs},
            **dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True)),
        }
        rows = []
        for req_id, num_tokens in scheduler_output.num_scheduled_tokens.items():
            request, first = self.requests[req_id], num_computed[req_id]
            tokens = StepTokens(
                request.token_ids[first : first + num_tokens], first, request.block_ids
            )
            is_partial = first + num_tokens < request.num_prompt_tokens
            rows.append(_Row(req_id, tokens, is_partial))
        return rows

    def _prepare(
        self, scheduler_output: SchedulerOutput, rows: list[_Row]
    ) -> tuple[Bucket, GraphInputs]:
        tokens = [row.tokens for row in rows]
        first = tokens[0]
        if first.num_computed_tokens < self.requests[rows[0].req_id].num_prompt_tokens:
            assert len(rows) == 1, "a prefill step runs alone"
            padded = scheduler_output.num_scheduled_tokens_padded
            assert padded is not None
            prefill = PrefillBucket(padded[rows[0].req_id])
            return prefill, prefill_inputs(
                prefill, first, max_model_len=self.max_model_len, block_size=self.block_size
            )
        longest = max(row.num_computed_tokens for row in tokens) + 1
        decode = self.buckets.pick_decode_bucket(len(rows), longest)
        return decode, decode_inputs(decode, tokens, block_size=self.block_size)

    def _sample(self, logits: torch.Tensor, rows: list[_Row]) -> ModelRunnerOutput:
        sampled: dict[str, list[int]] = {row.req_id: [] for row in rows}
        # Nothing is drawn for a chunk that is not the prompt's last: its token would be no output.
        wanted = {row.req_id: index for index, row in enumerate(rows) if not row.is_partial}
        while wanted:
            states = [self.sampling_states[req_id] for req_id in wanted]
            try:
                token_ids = self.sampler.sample(logits[list(wanted.values())], states)
            except InvalidLogitsError as error:
                for req_id in error.request_ids:
                    self.failures[req_id] = error
                    del wanted[req_id]
                continue
            for req_id, token_id in zip(wanted, token_ids, strict=True):
                self.requests[req_id].token_ids.append(token_id)
                sampled[req_id] = [token_id]
            break
        return ModelRunnerOutput(list(sampled), list(sampled.values()))

    def _record(
        self, scheduler_output: SchedulerOutput, bucket: Bucket, rows: list[_Row], seconds: float
    ) -> StepRecord:
        contexts = (len(r.tokens.token_ids) + r.tokens.num_computed_tokens for r in rows)
        new_reqs = scheduler_output.scheduled_new_reqs
        return StepRecord(
            bucket=bucket,
            num_seqs=len(rows),
            num_tokens=scheduler_output.total_num_scheduled_tokens,
            num_context_tokens=sum(contexts),
            num_cached_tokens=sum(new.num_computed_tokens for new in new_reqs),
            seconds=seconds,
        )
