"""A step between the scheduler and the sampler: which graph, which inputs, whose rows."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.backends.inputs import GraphInputs, StepTokens
from neuron_llm.runtime.sampler import InvalidLogitsError, SamplingState
from neuron_llm.scheduler import Bucket, ModelRunnerOutput
from neuron_llm.scheduler.step_record import StepRecord


@dataclass(eq=False)
class RunnerRequest:
    """What the runner keeps of a request.

    Attributes:
        token_ids: prompt and sampled tokens.
        num_prompt_tokens: how many of them are the prompt.
        block_ids: the block table.
        sampling: how its tokens are picked.
    """

    token_ids: list[int]
    num_prompt_tokens: int
    block_ids: list[int]
    sampling: SamplingState


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class PreparedStep:
    """A step that only waits for its graph, and perhaps for tokens of the step before.

    Attributes:
        bucket: the graph.
        inputs: its padded inputs.
        rows: one per request, in batch order.
        num_cached_tokens: prompt tokens that a request starting here found in the prefix cache.
    """

    bucket: Bucket
    inputs: GraphInputs
    rows: tuple[Row, ...]
    num_cached_tokens: int

    def fill_placeholders(self) -> None:
        """Put the tokens that have been sampled since into `input_ids`.

        A request that got none has ended; its row computes token 0, and nobody reads the result.
        """
        input_ids = self.inputs.input_ids.numpy()
        for index, row in enumerate(self.rows):
            position = row.tokens.num_computed_tokens
            if row.lacks_token and position < len(row.request.token_ids):
                input_ids[index] = row.request.token_ids[position]

    def record(self, seconds: float) -> StepRecord:
        """Return what the step cost."""
        num_tokens = sum(len(row.tokens.token_ids) for row in self.rows)
        return StepRecord(
            bucket=self.bucket,
            num_seqs=len(self.rows),
            num_tokens=num_tokens,
            num_context_tokens=num_tokens + sum(r.tokens.num_computed_tokens for r in self.rows),
            num_cached_tokens=self.num_cached_tokens,
            seconds=seconds,
        )


@dataclass(frozen=True)
class SampledStep:
    """What the rows of a step got.

    Attributes:
        output: their tokens, for the scheduler.
        failures: rows whose logits were no numbers, and the error.
    """

    output: ModelRunnerOutput
    failures: tuple[tuple[Row, InvalidLogitsError], ...]
