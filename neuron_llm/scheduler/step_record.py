"""What one step cost: which graph ran, for how many real tokens, rows and context tokens."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.scheduler.buckets import Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One graph run.

    Attributes:
        bucket: the graph's bucket.
        num_seqs: real requests in it; 1 for a prefill.
        num_tokens: real tokens computed.
        num_context_tokens: tokens visible to attention, summed over the real requests.
        num_cached_tokens: prompt tokens that a request starting in this step found in the cache.
        seconds: from handing over the inputs to having the logits.
        queue_seconds: how long the request whose first step this is had waited since its arrival;
            None for any other step.
    """

    bucket: Bucket
    num_seqs: int
    num_tokens: int
    num_context_tokens: int
    num_cached_tokens: int
    seconds: float
    queue_seconds: float | None = None
