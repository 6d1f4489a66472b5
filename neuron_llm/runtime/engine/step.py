"""A step between the scheduler and the sampler: which graph, which inputs, whose rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuron_llm.backends.graph.inputs import GraphInputs, StepTokens
from neuron_llm.runtime.sampling.logprobs import PromptScores, TokenLogprobs
from neuron_llm.runtime.sampling.sampler import SamplingError
from neuron_llm.runtime.sampling.sampling_state import SamplingState
from neuron_llm.scheduler import Bucket, ModelRunnerOutput, SchedulerOutput
from neuron_llm.scheduler.step_record import StepRecord


@dataclass(eq=False, kw_only=True)
class RunnerRequest:
    """What the runner keeps of a request.

    Attributes:
        token_ids: prompt and sampled tokens.
        num_prompt_tokens: how many of them are the prompt.
        block_ids: the block table.
        sampling: how its tokens are picked.
        prompt_scores: the log probabilities of its prompt; None if nobody wants them.
    """

    token_ids: list[int]
    num_prompt_tokens: int
    block_ids: list[int]
    sampling: SamplingState
    prompt_scores: PromptScores | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A request's share of a step.

    Attributes:
        req_id: its id; while the step runs, another request may come to have it.
        request: the request itself.
        tokens: what is computed.
        lacks_token: whether the one token of a decode was not sampled yet; 0 stands for it.
        is_partial: whether a chunk is not the prompt's last, so that nothing is sampled.
    """

    req_id: str
    request: RunnerRequest
    tokens: StepTokens
    lacks_token: bool
    is_partial: bool


@dataclass(frozen=True, kw_only=True)
class GraphCall:
    """One run of a graph.

    Attributes:
        bucket: the graph.
        inputs: its padded inputs.
        num_seqs: real rows of logits.
        num_tokens: real tokens.
        num_context_tokens: tokens visible to attention, summed over the real rows.
    """

    bucket: Bucket
    inputs: GraphInputs
    num_seqs: int
    num_tokens: int
    num_context_tokens: int

    @classmethod
    def of(cls, bucket: Bucket, inputs: GraphInputs, rows: Sequence[StepTokens]) -> GraphCall:
        """Return the call that computes `rows`, for which `inputs` has been built."""
        num_tokens = sum(len(row.token_ids) for row in rows)
        return cls(
            bucket=bucket,
            inputs=inputs,
            num_seqs=len(rows),
            num_tokens=num_tokens,
            num_context_tokens=num_tokens + sum(row.num_computed_tokens for row in rows),
        )

    def record(
        self, seconds: float, num_cached_tokens: int, queue_seconds: float | None
    ) -> StepRecord:
        """Return what the call cost."""
        return StepRecord(
            bucket=self.bucket,
            num_seqs=self.num_seqs,
            num_tokens=self.num_tokens,
            num_context_tokens=self.num_context_tokens,
            num_cached_tokens=num_cached_tokens,
            seconds=seconds,
            queue_seconds=queue_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class PreparedStep:
    """A step that only waits for its graph, and perhaps for tokens of the step before.

    Attributes:
        scheduler_output: what it computes.
        calls: the one run of a graph; several for a chunk of a prompt whose log probabilities are
            wanted.
        rows: one per request, in batch order.
        prompt_scores: where the log probabilities of the chunk go; None if nobody wants them.
    """

    scheduler_output: SchedulerOutput
    calls: tuple[GraphCall, ...]
    rows: tuple[Row, ...]
    prompt_scores: PromptScores | None

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that a request starting here found in the prefix cache."""
        new_reqs = self.scheduler_output.scheduled_new_reqs
        return sum(new.num_computed_tokens for new in new_reqs)

    def fill_placeholders(self) -> None:
        """Put the tokens that have been sampled since into `input_ids`.

        A request that got none has ended; its row computes token 0, and nobody reads the result.
        """
        # A token can be missing only in a decode step, which is one call.
        input_ids = self.calls[0].inputs.input_ids.numpy()
        for index, row in enumerate(self.rows):
            position = row.tokens.num_computed_tokens
            if row.lacks_token and position < len(row.request.token_ids):
                input_ids[index] = row.request.token_ids[position]


@dataclass(frozen=True)
class FailedRow:
    """A row for which the graph gave nothing usable, and what is wrong with it."""

    row: Row
    error: SamplingError


@dataclass(frozen=True, kw_only=True)
class SampledStep:
    """What the rows of a step got.

    Attributes:
        step: what was run.
        output: the tokens of its rows, for the scheduler.
        failures: the rows that got none.
        logprobs: of the tokens, by request, for those that want them.
    """

    step: PreparedStep
    output: ModelRunnerOutput
    failures: tuple[FailedRow, ...]
    logprobs: Mapping[str, TokenLogprobs]
