"""The prompts of a run, put together again from the steps of its log. Knows no torch.

Prompts are computed one at a time, each from the tokens that it found in the prefix cache: a step
is the first of its prompt if and only if there is nothing before it but those.
"""

from __future__ import annotations

from collections.abc import Iterable

from neuron_llm.report.workload.prefix_hits import PrefillWork
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.scheduler.buckets import PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

FORMAT_NAME = "last run"


class LoggedPrompts:
    """Collects the prompts of a run.

    Attributes:
        num_decoded_tokens: tokens that decodes gave, of all requests together.
    """

    def __init__(self, steps: Iterable[StepRecord] = ()) -> None:
        self.num_decoded_tokens = 0
        self._computed: list[int] = []
        self._cached: list[int] = []
        for step in steps:
            self.add(step)

    def add(self, step: StepRecord) -> None:
        """Take in the next step."""
        if not isinstance(step.bucket, PrefillBucket):
            self.num_decoded_tokens += step.num_tokens
            return
        num_before = step.num_context_tokens - step.num_tokens
        if num_before == step.num_cached_tokens or not self._computed:
            self._computed.append(step.num_tokens)
            self._cached.append(step.num_cached_tokens)
        else:
            self._computed[-1] += step.num_tokens

    @property
    def work(self) -> PrefillWork:
        """What the prefix cache left to compute of each prompt."""
        return PrefillWork(self._computed, self._cached)

    @property
    def mean_output_tokens(self) -> int:
        """Tokens that a prompt got on average, its first one included, at least 1."""
        return 1 + round(self.num_decoded_tokens / max(len(self._computed), 1))

    def trace(self) -> Trace:
        """Return the prompts, all of which come at once; what each generated is not on record."""
        requests = tuple(
            TraceRequest(0.0, computed + cached, None, (), line)
            for line, (computed, cached) in enumerate(
                zip(self._computed, self._cached, strict=True), start=1
            )
        )
        return Trace(FORMAT_NAME, requests, (), None, 0)
