"""The model runner: from a scheduler's output to sampled tokens, through one graph.

A prefill graph has logits for the last token of its chunk only. Where those of the others are
wanted too, for the log probabilities of a prompt, the chunk runs through decode graphs instead: up
to a batch of successive tokens per call, as rows of one request. A decode graph writes the keys and
values of all its rows before any of them attends, so each row sees those before it.

It knows requests only by what `SchedulerOutput` says and by the tokens it sampled itself. A step is
prepared, run and sampled. Another thread may run and sample steps, in order, while the next is
prepared: that touches nothing but the steps' rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from neuron_llm.backends.graph.inputs import (
    GraphInputs,
    StepTokens,
    decode_inputs,
    empty_inputs,
    fill_decode_inputs,
    fill_prefill_inputs,
)
from neuron_llm.backends.protocol import Session
from neuron_llm.runtime.engine.step import (
    FailedRow,
    GraphCall,
    PreparedStep,
    Row,
    RunnerRequest,
    SampledStep,
)
from neuron_llm.runtime.sampling.logprobs import PromptScores, TokenLogprobs, token_logprobs
from neuron_llm.runtime.sampling.sampler import Sampler, SamplingError
from neuron_llm.runtime.sampling.sampling_state import SamplingState
from neuron_llm.scheduler import (
    Bucket,
    BucketSet,
    DecodeBucket,
    ModelRunnerOutput,
    PrefillBucket,
    SchedulerOutput,
)


class ModelRunner:
    """Runs the graph of each step.

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
        self._inputs: dict[Bucket, deque[GraphInputs]] = {}

    def add_sampling(self, req_id: str, state: SamplingState) -> None:
        """Say how a request's tokens are picked, before its first step."""
        self.sampling_states[req_id] = state

    def remove_sampling(self, req_id: str) -> None:
        """Forget how a request's tokens are picked, once it has finished: it gets no more."""
        self.sampling_states.pop(req_id).is_over = True

    def forget_requests(self) -> None:
        """Forget every request; steps that still run keep their inputs for themselves."""
        self.requests.clear()
        self.sampling_states.clear()
        self._inputs.clear()

    def prepare(self, scheduler_output: SchedulerOutput) -> PreparedStep | None:
        """Build the inputs of a step; None if it computes nothing.

        The step before may still run: tokens it has yet to sample are left out.
        """
        self._update_requests(scheduler_output)
        rows = self._rows(scheduler_output)
        if not rows:
            return None
        request, first = rows[0].request, rows[0].tokens
        scores = None
        if first.num_computed_tokens >= request.num_prompt_tokens:
            calls = [self._decode_call([row.tokens for row in rows])]
        else:
            assert len(rows) == 1, "a prefill step runs alone"
            scores = request.prompt_scores
            if scores is None:
                calls = [self._prefill_call(scheduler_output, rows[0])]
            else:
                calls = self._scoring_calls(first)
        return PreparedStep(
            scheduler_output=scheduler_output,
            calls=tuple(calls),
            rows=tuple(rows),
            prompt_scores=scores,
        )

    @torch.inference_mode()
    def run(self, step: PreparedStep, call: GraphCall) -> torch.Tensor:
        """Run a graph of the step, once the step before has been sampled.

        Returns:
            logits `[num_seqs, vocab_size]`, or tokens `[num_seqs]` of graphs that sample: one row
            per real row and padding behind them.
        """
        step.fill_placeholders()
        return self.session.execute(call.bucket, call.inputs)

    @torch.inference_mode()
    def score_prompt(
        self, scores: PromptScores, call: GraphCall, logits: torch.Tensor
    ) -> torch.Tensor:
        """Take in the log probabilities of a part of a chunk.

        Returns:
            the logits of its last token, `[1, vocab_size]`, as a prefill graph would have given
            them; NaN once any logits of the prompt were no numbers, so that the request fails.
        """
        scores.add(logits[: call.num_seqs])
        last = logits[call.num_seqs - 1 : call.num_seqs]
        return last if scores.is_finite else torch.full_like(last, torch.nan)

    @torch.inference_mode()
    def sample(self, step: PreparedStep, outputs: torch.Tensor) -> SampledStep:
        """Pick the next token of each of the step's requests from what its graph gave.

        Nothing is drawn for a chunk that is not the prompt's last, since its token would be no
        output, and nothing for a request that has ended while the step ran.
        """
        sampled: dict[str, list[int]] = {row.req_id: [] for row in step.rows}
        logprobs: dict[str, TokenLogprobs] = {}
        token_ids, failures = self._choose(step, outputs)
        for index, token_id in token_ids.items():
            row = step.rows[index]
            row.request.token_ids.append(token_id)
            sampled[row.req_id] = [token_id]
            num_logprobs = row.request.sampling.params.logprobs
            if num_logprobs is not None:
                logprobs[row.req_id] = token_logprobs(outputs[index], token_id, num_logprobs)
        return SampledStep(
            step=step,
            output=ModelRunnerOutput(list(sampled), list(sampled.values())),
            failures=tuple(failures),
            logprobs=logprobs,
        )

    def _choose(
        self, step: PreparedStep, outputs: torch.Tensor
    ) -> tuple[dict[int, int], list[FailedRow]]:
        """Return the token of each row that gets one, and the rows that cannot get any."""
        failures: list[FailedRow] = []
        wanted = {
            index: row
            for index, row in enumerate(step.rows)
            if not row.is_partial and not row.request.sampling.is_over
        }
        while wanted:
            states = [row.request.sampling for row in wanted.values()]
            try:
                token_ids = self.sampler.sample(outputs[list(wanted)], states)
            except SamplingError as error:
                for index, row in list(wanted.items()):
                    if row.req_id in error.request_ids:
                        row.request.sampling.is_over = True
                        failures.append(FailedRow(row, error))
                        del wanted[index]
            else:
                return dict(zip(wanted, token_ids, strict=True)), failures
        return {}, failures

    def is_live(self, row: Row) -> bool:
        """Whether the row's request has not ended, whoever has its id now."""
        return self.sampling_states.get(row.req_id) is row.request.sampling

    def _update_requests(self, scheduler_output: SchedulerOutput) -> None:
        for req_id in scheduler_output.finished_req_ids:
            self.requests.pop(req_id, None)
        for new in scheduler_output.scheduled_new_reqs:
            sampling, scores = self.sampling_states[new.req_id], None
            if sampling.num_prompt_logprobs is not None:
                assert not new.num_computed_tokens, "it computes the whole of its prompt"
                scores = PromptScores(new.prompt_token_ids, sampling.num_prompt_logprobs)
            self.requests[new.req_id] = RunnerRequest(
                token_ids=list(new.prompt_token_ids),
                num_prompt_tokens=len(new.prompt_token_ids),
                block_ids=list(new.block_ids),
                sampling=sampling,
                prompt_scores=scores,
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
            rows.append(
                Row(
                    req_id=req_id,
                    request=request,
                    tokens=tokens,
                    lacks_token=lacks_token,
                    is_partial=is_partial,
                )
            )
        return rows

    def _prefill_call(self, scheduler_output: SchedulerOutput, row: Row) -> GraphCall:
        padded = scheduler_output.num_scheduled_tokens_padded
        assert padded is not None
        bucket = PrefillBucket(padded[row.req_id])
        inputs = self._reused_inputs(bucket)
        fill_prefill_inputs(inputs, row.tokens, block_size=self.block_size)
        return GraphCall.of(bucket, inputs, [row.tokens])

    def _decode_call(self, rows: Sequence[StepTokens]) -> GraphCall:
        bucket = self._decode_bucket(rows)
        inputs = self._reused_inputs(bucket)
        fill_decode_inputs(inputs, rows, block_size=self.block_size)
        return GraphCall.of(bucket, inputs, rows)

    def _decode_bucket(self, rows: Sequence[StepTokens]) -> DecodeBucket:
        longest = max(row.num_computed_tokens for row in rows) + 1
        return self.buckets.pick_decode_bucket(len(rows), longest)

    def _scoring_calls(self, chunk: StepTokens) -> list[GraphCall]:
        tokens = [
            StepTokens([token_id], position, chunk.block_ids)
            for position, token_id in enumerate(chunk.token_ids, start=chunk.num_computed_tokens)
        ]
        size = self.buckets.num_seqs_buckets[-1]
        calls = []
        for first in range(0, len(tokens), size):
            rows = tokens[first : first + size]
            bucket = self._decode_bucket(rows)
            inputs = decode_inputs(bucket, rows, block_size=self.block_size)
            calls.append(GraphCall.of(bucket, inputs, rows))
        return calls

    def _reused_inputs(self, bucket: Bucket) -> GraphInputs:
        """Return inputs to fill: of a bucket's two, those that the step in flight does not read."""
        if bucket not in self._inputs:
            sizes = {"max_model_len": self.max_model_len, "block_size": self.block_size}
            self._inputs[bucket] = deque(empty_inputs(bucket, **sizes) for _ in range(2))
        inputs = self._inputs[bucket]
        inputs.rotate()
        return inputs[0]
