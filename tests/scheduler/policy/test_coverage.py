import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.errors import NoBucketError
from neuron_llm.scheduler.buckets import (
    BucketSet,
    DecodeBucket,
    PrefillBucket,
    get_bucket_for_count,
    get_default_num_batched_tokens_buckets,
    get_default_num_seqs_buckets,
)
from neuron_llm.scheduler.policy.coverage import (
    ReachableShapes,
    check_coverage,
    min_blocks_per_request,
    reachable_shapes,
    split_reachable,
)


def bucket_set(tokens: list[int], seqs: list[int], contexts: list[int]) -> BucketSet:
    return BucketSet(
        tuple(PrefillBucket(n) for n in tokens),
        tuple(DecodeBucket(b, c) for b in seqs for c in contexts),
    )


def shapes_of(*, chunk: int, seqs: int, context: int) -> ReachableShapes:
    return ReachableShapes(
        max_prompt_tokens=context,
        max_chunk_tokens=chunk,
        max_decode_seqs=seqs,
        max_context_tokens=context,
    )


def test_shapes_of_a_request_that_reserves_what_it_needs() -> None:
    shapes = reachable_shapes(
        max_model_len=64,
        max_num_batched_tokens=16,
        max_num_seqs=8,
        num_usable_blocks=5,
        blocks_per_request=min_blocks_per_request("reserve", 64, 4),
    )
    assert shapes == ReachableShapes(
        max_prompt_tokens=63, max_chunk_tokens=16, max_decode_seqs=5, max_context_tokens=63
    )


def test_shapes_where_every_request_is_given_its_full_length() -> None:
    assert min_blocks_per_request("max_model_len", 65, 4) == 17
    shapes = reachable_shapes(
        max_model_len=65,
        max_num_batched_tokens=128,
        max_num_seqs=8,
        num_usable_blocks=17 * 3 + 16,
        blocks_per_request=17,
    )
    assert shapes == ReachableShapes(
        max_prompt_tokens=64, max_chunk_tokens=65, max_decode_seqs=3, max_context_tokens=64
    )


def test_prefill_budget_does_not_limit_decodes() -> None:
    shapes = reachable_shapes(
        max_model_len=64,
        max_num_batched_tokens=2,
        max_num_seqs=4,
        num_usable_blocks=64,
        blocks_per_request=1,
    )
    assert (shapes.max_chunk_tokens, shapes.max_decode_seqs) == (2, 4)


def test_bucket_is_unreachable_only_when_the_next_smaller_one_is_enough() -> None:
    assert split_reachable([1, 2, 4, 8, 16], 5) == ([1, 2, 4, 8], [16])
    assert split_reachable([1, 2, 4, 8], 4) == ([1, 2, 4], [8])
    assert split_reachable([1, 2, 4, 8], 3) == ([1, 2, 4], [8])
    assert split_reachable([1, 2, 4, 8], 8) == ([1, 2, 4, 8], [])
    assert split_reachable([8], 1) == ([8], [])
    assert split_reachable([1, 2], 0) == ([1], [2])


@given(
    st.lists(st.integers(1, 60), min_size=1, unique=True).map(sorted),
    st.data(),
)
def test_no_count_changes_its_bucket_when_unreachable_ones_go(
    buckets: list[int], data: st.DataObject
) -> None:
    greatest = data.draw(st.integers(1, buckets[-1]))
    needed, dropped = split_reachable(buckets, greatest)
    assert needed + dropped == buckets
    for count in range(1, greatest + 1):
        assert get_bucket_for_count(count, needed) == get_bucket_for_count(count, buckets)
    # And what stays is needed: without the last one the greatest count has none.
    if len(needed) > 1:
        with pytest.raises(NoBucketError):
            get_bucket_for_count(greatest, needed[:-1])


@given(st.integers(1, 5000))
def test_every_chunk_fits_its_bucket_and_no_bucket_exceeds_the_budget(budget: int) -> None:
    buckets = get_default_num_batched_tokens_buckets(budget)
    for num_tokens in range(1, budget + 1):
        assert num_tokens <= get_bucket_for_count(num_tokens, buckets) <= budget


def test_default_ladders() -> None:
    assert get_default_num_batched_tokens_buckets(3000) == [128, 256, 512, 1024, 2048, 3000]
    assert get_default_num_batched_tokens_buckets(13) == [13]
    assert get_default_num_batched_tokens_buckets(128) == [128]
    assert get_default_num_seqs_buckets(6) == [1, 2, 4, 6]
    assert get_default_num_seqs_buckets(1) == [1]


def test_full_set_covers_everything() -> None:
    shapes = shapes_of(chunk=16, seqs=4, context=63)
    assert check_coverage(bucket_set([8, 16], [1, 2, 4], [64]), shapes) == ()


def test_gaps_are_named() -> None:
    shapes = shapes_of(chunk=16, seqs=4, context=63)
    assert check_coverage(bucket_set([8], [1, 2, 4], [64]), shapes) == (
        "a prefill step of 9 tokens has no bucket (largest: 8)",
        "a prefill step of 16 tokens has no bucket (largest: 8)",
    )
    shapes = shapes_of(chunk=16, seqs=2, context=33)
    assert check_coverage(bucket_set([16], [1, 2], [32]), shapes) == (
        "a decode step of 1 requests with up to 33 tokens of context has no bucket"
        " (largest: 2 requests, 32 tokens)",
        "a decode step of 2 requests with up to 33 tokens of context has no bucket"
        " (largest: 2 requests, 32 tokens)",
    )


def test_empty_set_covers_nothing() -> None:
    assert check_coverage(BucketSet((), ()), shapes_of(chunk=1, seqs=1, context=2)) == (
        "a prefill step of 1 tokens has no bucket (largest: 0)",
        "a decode step of 1 requests with up to 1 tokens of context has no bucket"
        " (largest: 0 requests, 0 tokens)",
        "a decode step of 1 requests with up to 2 tokens of context has no bucket"
        " (largest: 0 requests, 0 tokens)",
    )


def test_removed_bucket_gives_way_to_the_next_larger_one_or_to_an_error() -> None:
    buckets = bucket_set([16], [1, 4], [64])
    assert buckets.pick_prefill_bucket(3) == PrefillBucket(16)
    assert buckets.pick_decode_bucket(2, 10) == DecodeBucket(4, 64)
    assert buckets.pick_decode_bucket(1, 10) == DecodeBucket(1, 64)
    with pytest.raises(NoBucketError):
        buckets.pick_decode_bucket(5, 10)
    with pytest.raises(NoBucketError):
        buckets.pick_decode_bucket(1, 65)


_LADDER = st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True).map(sorted)


@given(
    _LADDER,
    _LADDER,
    _LADDER,
    st.builds(
        shapes_of,
        chunk=st.integers(1, 45),
        seqs=st.integers(1, 45),
        context=st.integers(2, 45),
    ),
)
def test_verdict_equals_looking_at_every_shape_there_is(
    tokens: list[int], seqs: list[int], contexts: list[int], shapes: ReachableShapes
) -> None:
    buckets = bucket_set(tokens, seqs, contexts)
    is_covered = True
    try:
        for num_tokens in range(1, shapes.max_chunk_tokens + 1):
            buckets.pick_prefill_bucket(num_tokens)
        for num_seqs in range(1, shapes.max_decode_seqs + 1):
            for context in range(1, shapes.max_context_tokens + 1):
                buckets.pick_decode_bucket(num_seqs, context)
    except NoBucketError:
        is_covered = False
    assert (check_coverage(buckets, shapes) == ()) == is_covered
