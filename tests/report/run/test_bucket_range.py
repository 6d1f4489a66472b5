"""Ranges of buckets: they are what the scheduler's own look-up says, and cover every count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.run.bucket_range import bucket_ranges
from neuron_llm.scheduler.buckets import BucketSet, DecodeBucket, PrefillBucket

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=5, unique=True).map(sorted)


def bucket_set(tokens: list[int], rows: list[int], contexts: list[int]) -> BucketSet:
    return BucketSet(
        prefill=tuple(PrefillBucket(size) for size in tokens),
        decode=tuple(DecodeBucket(batch, context) for batch in rows for context in contexts),
    )


def test_bucket_serves_what_the_next_smaller_does_not_hold() -> None:
    ranges = bucket_ranges(bucket_set([32, 128], [1, 3, 8], [256, 512]))
    described = {bucket.name: counts.description for bucket, counts in ranges.items()}
    assert described == {
        "prefill_t32": "1-32 prompt tokens",
        "prefill_t128": "33-128 prompt tokens",
        "decode_b1_c256": "1 request, context 1-256",
        "decode_b1_c512": "1 request, context 257-512",
        "decode_b3_c256": "2-3 requests, context 1-256",
        "decode_b3_c512": "2-3 requests, context 257-512",
        "decode_b8_c256": "4-8 requests, context 1-256",
        "decode_b8_c512": "4-8 requests, context 257-512",
    }


def test_worst_padding_is_at_the_least_count() -> None:
    ranges = bucket_ranges(bucket_set([32, 128], [1, 4], [64]))
    worst = [counts.worst_padding_ratio for counts in ranges.values()]
    assert worst == [31 / 32, 95 / 128, 0.0, 2 / 4]


def test_json_has_the_limits_of_its_phase() -> None:
    prefill, decode = bucket_ranges(bucket_set([8], [2], [64])).values()
    assert prefill.to_json() == {
        "phase": "prefill",
        "min_tokens": 1,
        "max_tokens": 8,
        "worst_padding_ratio": 7 / 8,
    }
    assert decode.to_json() == {
        "phase": "decode",
        "min_seqs": 1,
        "max_seqs": 2,
        "min_context_tokens": 1,
        "max_context_tokens": 64,
        "worst_padding_ratio": 1 / 2,
    }


@given(SIZES, SIZES, SIZES)
def test_ranges_agree_with_the_look_up(
    tokens: list[int], rows: list[int], contexts: list[int]
) -> None:
    buckets = bucket_set(tokens, rows, contexts)
    ranges = bucket_ranges(buckets)
    assert list(ranges) == list(buckets.all)
    for count in range(1, tokens[-1] + 1):
        served = ranges[buckets.pick_prefill_bucket(count)]
        assert served.min_count <= count <= served.max_count
    for num_seqs in range(1, rows[-1] + 1):
        for context in (1, *contexts):
            served = ranges[buckets.pick_decode_bucket(num_seqs, context)]
            assert served.min_count <= num_seqs <= served.max_count
            assert served.min_context_tokens is not None
            assert served.max_context_tokens is not None
            assert served.min_context_tokens <= context <= served.max_context_tokens
