from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.errors import NoBucketError
from neuron_llm.scheduler import (
    BucketSet,
    DecodeBucket,
    PrefillBucket,
    get_bucket_for_count,
    get_default_num_batched_tokens_buckets,
    get_default_num_seqs_buckets,
)

BUCKETS = BucketSet(
    prefill=(PrefillBucket(8), PrefillBucket(16)),
    decode=(
        DecodeBucket(1, 32),
        DecodeBucket(1, 64),
        DecodeBucket(4, 32),
        DecodeBucket(4, 64),
    ),
)


@pytest.mark.parametrize(
    ("count", "bucket"),
    [(50, 128), (127, 128), (128, 128), (129, 256), (1500, 2048), (3000, 4096), (8192, 8192)],
)
def test_the_smallest_sufficient_bucket_is_picked(count: int, bucket: int) -> None:
    assert get_bucket_for_count(count, get_default_num_batched_tokens_buckets(8192)) == bucket


@pytest.mark.parametrize(("count", "bucket"), [(3000, 4096), (500, 512), (8192, 8192), (513, 1024)])
def test_custom_buckets_are_used_as_given(count: int, bucket: int) -> None:
    assert get_bucket_for_count(count, [512, 1024, 2048, 4096, 8192]) == bucket


def test_a_count_beyond_every_bucket_is_an_error_and_never_the_largest_bucket() -> None:
    with pytest.raises(NoBucketError, match=r"no bucket holds 17 \(largest: 16\)"):
        get_bucket_for_count(17, [8, 16])
    with pytest.raises(NoBucketError, match=r"no bucket holds 1 \(largest: 0\)"):
        get_bucket_for_count(1, [])


def test_without_a_bucket_the_next_larger_one_is_used() -> None:
    assert get_bucket_for_count(7, [4, 16]) == 16


@pytest.mark.parametrize(
    ("maximum", "buckets"),
    [
        (8192, [128, 256, 512, 1024, 2048, 4096, 8192]),
        (3000, [128, 256, 512, 1024, 2048, 3000]),
        (129, [128, 129]),
        (128, [128]),
        (100, [100]),
        (13, [13]),
        (1, [1]),
    ],
)
def test_default_token_buckets_end_exactly_at_the_maximum(maximum: int, buckets: list[int]) -> None:
    assert get_default_num_batched_tokens_buckets(maximum) == buckets


@pytest.mark.parametrize(
    ("maximum", "buckets"),
    [(8, [1, 2, 4, 8]), (6, [1, 2, 4, 6]), (1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5])],
)
def test_default_sequence_buckets_end_exactly_at_the_maximum(
    maximum: int, buckets: list[int]
) -> None:
    assert get_default_num_seqs_buckets(maximum) == buckets


@given(st.integers(1, 100_000), st.data())
def test_default_buckets_hold_every_count_and_never_pad_past_the_maximum(
    maximum: int, data: st.DataObject
) -> None:
    for default in (get_default_num_batched_tokens_buckets, get_default_num_seqs_buckets):
        buckets = default(maximum)
        assert buckets == sorted(set(buckets)) and buckets[-1] == maximum
        count = data.draw(st.integers(1, maximum))
        bucket = get_bucket_for_count(count, buckets)
        assert count <= bucket <= maximum
        assert all(smaller < count for smaller in buckets if smaller < bucket)


@given(st.lists(st.integers(1, 500), min_size=1, unique=True).map(sorted), st.integers(1, 600))
def test_the_picked_bucket_is_the_least_that_holds_the_count(
    buckets: list[int], count: int
) -> None:
    sufficient = [bucket for bucket in buckets if bucket >= count]
    if sufficient:
        assert get_bucket_for_count(count, buckets) == sufficient[0]
    else:
        with pytest.raises(NoBucketError):
            get_bucket_for_count(count, buckets)


def test_a_bucket_set_picks_the_prefill_graph_by_tokens() -> None:
    assert BUCKETS.pick_prefill_bucket(8) == PrefillBucket(8)
    assert BUCKETS.pick_prefill_bucket(9) == PrefillBucket(16)
    with pytest.raises(NoBucketError):
        BUCKETS.pick_prefill_bucket(17)


@pytest.mark.parametrize(
    ("num_seqs", "context_tokens", "bucket"),
    [
        (1, 32, DecodeBucket(1, 32)),
        (1, 33, DecodeBucket(1, 64)),
        (2, 1, DecodeBucket(4, 32)),
        (4, 64, DecodeBucket(4, 64)),
    ],
)
def test_a_bucket_set_picks_the_decode_graph_by_rows_and_context(
    num_seqs: int, context_tokens: int, bucket: DecodeBucket
) -> None:
    assert BUCKETS.pick_decode_bucket(num_seqs, context_tokens) == bucket


@pytest.mark.parametrize(("num_seqs", "context_tokens"), [(5, 1), (1, 65)])
def test_a_bucket_set_refuses_too_many_rows_and_too_long_a_context(
    num_seqs: int, context_tokens: int
) -> None:
    with pytest.raises(NoBucketError):
        BUCKETS.pick_decode_bucket(num_seqs, context_tokens)


def test_a_bucket_set_lists_its_sizes_and_graphs() -> None:
    assert BUCKETS.num_batched_tokens_buckets == [8, 16]
    assert BUCKETS.num_seqs_buckets == [1, 4]
    assert [bucket.name for bucket in BUCKETS.all] == [
        "prefill_t8",
        "prefill_t16",
        "decode_b1_c32",
        "decode_b1_c64",
        "decode_b4_c32",
        "decode_b4_c64",
    ]


def test_the_largest_of_a_bucket_set_hold_what_all_hold() -> None:
    largest = BUCKETS.largest
    assert largest.prefill == BUCKETS.prefill[-1:]
    assert largest.decode == (max(BUCKETS.decode),)
    assert largest.pick_prefill_bucket(1) == BUCKETS.pick_prefill_bucket(16)
    assert largest.largest == largest


def test_a_bucket_set_out_of_order_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        BucketSet(prefill=(PrefillBucket(16), PrefillBucket(8)), decode=())
    with pytest.raises(AssertionError):
        BucketSet(prefill=(), decode=(DecodeBucket(1, 64), DecodeBucket(1, 64)))
