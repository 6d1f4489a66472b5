"""Steps for tests of the report room, as a run could have made them."""

from __future__ import annotations

from hypothesis import strategies as st

from neuron_llm.scheduler.buckets import Bucket, BucketSet, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

BUCKETS = BucketSet(
    prefill=(PrefillBucket(8), PrefillBucket(16)),
    decode=tuple(DecodeBucket(rows, context) for rows in (1, 2, 4) for context in (128, 256)),
)


def prefill_step(
    num_tokens: int, *, size: int, cached: int = 0, seconds: float = 0.5
) -> StepRecord:
    """Return a prefill of `num_tokens` in the bucket of `size`."""
    return StepRecord(
        bucket=PrefillBucket(size),
        num_seqs=1,
        num_tokens=num_tokens,
        num_context_tokens=cached + num_tokens,
        num_cached_tokens=cached,
        seconds=seconds,
    )


def decode_step(*contexts: int, size: int, room: int, seconds: float = 0.25) -> StepRecord:
    """Return a decode of one row per context in the bucket of `size` rows and `room` tokens."""
    return StepRecord(
        bucket=DecodeBucket(size, room),
        num_seqs=len(contexts),
        num_tokens=len(contexts),
        num_context_tokens=sum(contexts),
        num_cached_tokens=0,
        seconds=seconds,
    )


def steps() -> st.SearchStrategy[StepRecord]:
    """Draw steps of `BUCKETS`; seconds are eighths, so that their sums are exact."""
    return st.sampled_from(BUCKETS.all).flatmap(_steps_of)


def _steps_of(bucket: Bucket) -> st.SearchStrategy[StepRecord]:
    seconds = st.integers(0, 80).map(lambda eighths: eighths / 8)
    if isinstance(bucket, PrefillBucket):
        return st.builds(
            prefill_step,
            st.integers(1, bucket.num_tokens),
            size=st.just(bucket.num_tokens),
            cached=st.integers(0, 64),
            seconds=seconds,
        )
    contexts = st.lists(
        st.integers(2, bucket.max_context_tokens), min_size=1, max_size=bucket.batch_size
    )
    return st.builds(
        lambda rows, seconds: decode_step(
            *rows, size=bucket.batch_size, room=bucket.max_context_tokens, seconds=seconds
        ),
        contexts,
        seconds,
    )
