"""The model runner: from a scheduler's output to sampled tokens, through one graph.

It knows requests only by what `SchedulerOutput` says and by the tokens it sampled itself. A step is
prepared, run and sampled. Another thread may run and sample steps, in order, while the next is
prepared: that touches nothing but the steps' rows.
"""

from __future__ import annotations

import torch

from neuron_llm.backends.inputs import GraphInputs, StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.protocol import Session
from neuron_llm.runtime.prepared_step import PreparedStep, Row, RunnerRequest, SampledStep
from neuron_llm.runtime.sampler import InvalidLogitsError, Sampler, SamplingState
from neuron_llm.runtime.sampling_params import SamplingParams
from neuron_llm.scheduler import (
    Bucket,
    BucketSet,
    ModelRunnerOutput,
    PrefillBucket,
    SchedulerOutput,
)


class ModelRunner:
    """Runs one graph per step.

    Args:
        session: the loaded graphs.
        buckets: the graphs that exist.
        sampler: picks the tokens.
        max_model_len: width of the prefill block table, in tokens.
        block_size: tokens per KV block.
    """

    def __init__(
        self,
        session: Session,
        buckets: BucketSet,
        sampler: Sampler,
        *,
        max_model_len: int,
        block_size: int,
    ) -> None:
        self.session = session
        self.buckets = buckets
        self.sampler = sampler
        self.max_model_len = max_model_len
        self.block_size = block_size
        self.requests: dict[str, RunnerRequest] = {}
        self.sampling_states: dict[str, SamplingState] = {}

    def add_sampling(self, req_id: str, params: SamplingParams) -> None:
        """Say how a request's tokens are picked, before its first step."""
        self.sampling_states[req_id] = self.sampler.new_state(req_id, params)

    def remove_sampling(self, req_id: str) -> None:
        """Forget how a request's tokens are picked, once it has finished: it gets no more."""
        self.sampling_states.pop(req_id).is_over = True

    def forget_requests(self) -> None:
        """Forget every request."""
        self.requests.clear()
        self.sampling_states.clear()

    def prepare(self, scheduler_output: SchedulerOutput) -> PreparedStep | None:
        """Build the inputs of a step; None if it computes nothing.

        The step before may still run: tokens it has yet to sample are left out.
        """
        self._update_requests(scheduler_output)
        rows = self._rows(scheduler_output)
        if not rows:
            return None
        bucket, inputs = self._build_inputs(scheduler_output, rows)
        new_reqs = scheduler_output.scheduled_new_reqs
        return PreparedStep(
            bucket=bucket,
            inputs=inputs,
            rows=tuple(rows),
            num_cached_tokens=sum(new.num_computed_tokens for new in new_reqs),
        )

    @torch.inference_mode()
    def run(self, step: PreparedStep) -> torch.Tensor:
        """Run the step's graph, once the step before has been sampled.

        Returns:
            logits `[num_seqs, vocab_size]`, one row per real row and padding behind them.
        """
        step.fill_placeholders()
        return self.session.execute(step.bucket, step.inputs)

    @torch.inference_mode()
    def sample(self, step: PreparedStep, logits: torch.Tensor) -> SampledStep:
        """Pick the next token of each of the step's requests.

        Nothing is drawn for a chunk that is not the prompt's last, since its token would be no
        output, and nothing for a request that has ended while the step ran.
        """
        sampled: dict[str, list[int]] = {row.req_id: [] for row in step.rows}
        failures: list[tuple[Row, InvalidLogitsError]] = []
        wanted = {
            index: row
            for index, row in enumerate(step.rows)
            if not row.is_partial and not row.request.sampling.is_over
        }
        while wanted:
            states = [row.request.sampling for row in wanted.values()]
            try:
                token_ids = self.sampler.sample(logits[list(wanted)], states)
            except InvalidLogitsError as error:
                for index, row in list(wanted.items()):
                    if row.req_id in error.request_ids:
                        row.request.sampling.is_over = True
                        failures.append((row, error))
                        del wanted[index]
                continue
            for row, token_id in zip(wanted.values(), token_ids, strict=True):
                row.request.token_ids.append(token_id)
                sampled[row.req_id] = [token_id]
            break
        output = ModelRunnerOutput(list(sampled), list(sampled.values()))
        return SampledStep(output, tuple(failures))

    def is_live(self, row: Row) -> bool:
        """Whether the row's request has not ended, whoever has its id now."""
        return self.sampling_states.get(row.req_id) is row.request.sampling

    def _update_requests(self, scheduler_output: SchedulerOutput) -> None:
        for req_id in scheduler_output.finished_req_ids:
            self.requests.pop(req_id, None)
        for new in scheduler_output.scheduled_new_reqs:
            self.requests[new.req_id] = RunnerRequest(
                token_ids=list(new.prompt_token_ids),
                num_prompt_tokens=len(new.prompt_token_ids),
                block_ids=list(new.block_ids),
                sampling=self.sampling_states[new.req_id],
            )
        cached = scheduler_output.scheduled_cached_reqs
        for req_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            self.requests[req_id].block_ids.extend(block_ids)

    def _rows(self, scheduler_output: SchedulerOutput) -> list[Row]:
        cached = scheduler_output.scheduled_cached_reqs
        num_computed = {
            **{new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs},
            **dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True)),
        }
        rows = []
        for req_id, num_tokens in scheduler_output.num_scheduled_tokens.items():
            request, first = self.requests[req_id], num_computed[req_id]
            # Looked at once: the step in flight may sample the token of a decode at any moment.
            token_ids = request.token_ids[first : first + num_tokens]
            lacks_token = not token_ids
            tokens = StepTokens(token_ids or [0], first, request.block_ids)
            assert len(tokens.token_ids) == num_tokens, "only the last token may be unknown"
            is_partial = first + num_tokens < request.num_prompt_tokens
            rows.append(Row(req_id, request, tokens, lacks_token, is_partial))
        return rows

    def _build_inputs(
        self, scheduler_output: SchedulerOutput, rows: list[Row]
    ) -> tuple[Bucket, GraphInputs]:
        tokens = [row.tokens for row in rows]
        first = tokens[0]
        if first.num_computed_tokens < rows[0].request.num_prompt_tokens:
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
