"""What running only the largest graphs pads, step by step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.run.padding_price import PaddingPrice
from neuron_llm.scheduler.buckets import Bucket, BucketSet, DecodeBucket, PrefillBucket
from neuron_llm.scheduler.step_record import StepRecord

BUCKETS = BucketSet(
    prefill=(PrefillBucket(8), PrefillBucket(16)),
    decode=tuple(DecodeBucket(rows, room) for rows in (1, 2, 4) for room in (32, 64)),
)


def step(bucket: Bucket, num_tokens: int) -> StepRecord:
    num_seqs = 1 if isinstance(bucket, PrefillBucket) else num_tokens
    return StepRecord(
        bucket=bucket,
        num_seqs=num_seqs,
        num_tokens=num_tokens,
        num_context_tokens=num_tokens,
        num_cached_tokens=0,
        seconds=0.25,
    )


def test_padding_is_counted_in_the_graph_that_ran_and_in_the_smallest_that_fits() -> None:
    price = PaddingPrice(BUCKETS)
    price.add(step(PrefillBucket(16), 5))
    assert price.to_json() == {"num_padded_tokens": 11, "num_least_padded_tokens": 3}
    price.add(step(PrefillBucket(16), 9))
    assert price.to_json() == {"num_padded_tokens": 18, "num_least_padded_tokens": 10}
    price.add(step(DecodeBucket(4, 64), 1))
    price.add(step(DecodeBucket(4, 64), 3))
    assert price.to_json() == {"num_padded_tokens": 22, "num_least_padded_tokens": 11}


@given(st.lists(st.tuples(st.sampled_from(["prefill", "decode"]), st.integers(1, 4))))
def test_the_smallest_graphs_that_fit_cost_nothing_more(drawn: list[tuple[str, int]]) -> None:
    price = PaddingPrice(BUCKETS)
    for phase, count in drawn:
        picked: Bucket = BUCKETS.pick_decode_bucket(count, 5)
        price.add(step(BUCKETS.pick_prefill_bucket(count) if phase == "prefill" else picked, count))
    assert price.num_padded_tokens == price.num_least_padded_tokens
