from __future__ import annotations

import pytest
from scheduler_factory import make_request

from neuron_llm.scheduler import Request
from neuron_llm.scheduler.kv_cache_manager import KVCacheManager

COMMON = list(range(48))


def make_kv(
    num_blocks: int = 11, block_size: int = 16, enable_prefix_caching: bool = True
) -> KVCacheManager:
    return KVCacheManager(num_blocks, block_size, enable_prefix_caching=enable_prefix_caching)


def start(kv: KVCacheManager, request: Request) -> list[int] | None:
    """Start a request as a scheduler does; return its new blocks."""
    hits = kv.get_computed_blocks(request)
    num_cached_tokens = len(hits) * kv.block_size
    block_ids = kv.allocate_slots(request, request.num_tokens - num_cached_tokens, hits)
    request.num_computed_tokens = request.num_tokens
    return block_ids


def hits_after(kv: KVCacheManager, request: Request, *token_ids: int) -> list[int]:
    """Return the blocks in which another request with these tokens before its own would start."""
    return kv.get_computed_blocks(make_request(prompt=[*request.all_token_ids, *token_ids, 999]))


def test_a_prefix_hit_shares_full_blocks_and_frees_in_reverse() -> None:
    kv = make_kv()
    first = make_request("a", prompt=[*COMMON, *[100] * 7])
    second = make_request("b", prompt=[*COMMON, *[200] * 5])
    assert start(kv, first) == [1, 2, 3, 4]
    assert kv.get_computed_blocks(second) == [1, 2, 3]
    assert start(kv, second) == [5]
    assert list(kv.block_ids(second)) == [1, 2, 3, 5]
    assert [kv.block_pool.ref_count(b) for b in (1, 2, 3, 4, 5)] == [2, 2, 2, 1, 1]
    assert kv.num_free_blocks == 5
    kv.check_integrity()
    kv.free(first)
    kv.free(second)
    assert kv.get_computed_blocks(make_request("c", prompt=[*COMMON, 300])) == [1, 2, 3]
    kv.check_integrity()
    assert kv.block_pool.allocate(10) == [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]


def test_a_fresh_prompt_evicts_the_tail_of_a_chain_first() -> None:
    kv = make_kv()
    first = make_request("a", prompt=COMMON)
    start(kv, first)
    kv.free(first)
    assert start(kv, make_request("b", prompt=list(range(1000, 1000 + 8 * 16)))) == [
        *range(4, 11),
        3,
    ]
    assert kv.get_computed_blocks(make_request("c", prompt=[*COMMON, 300])) == [1, 2]


def test_the_last_token_is_always_left_to_compute() -> None:
    kv = make_kv()
    start(kv, make_request("a", prompt=COMMON))
    assert len(kv.get_computed_blocks(make_request("b", prompt=COMMON))) == 2
    assert len(kv.get_computed_blocks(make_request("c", prompt=[*COMMON, 100]))) == 3


def test_looking_up_a_prefix_takes_nothing() -> None:
    kv = make_kv()
    start(kv, make_request("a", prompt=COMMON))
    kv.get_computed_blocks(make_request("b", prompt=COMMON))
    assert kv.block_pool.ref_count(1) == 1
    kv.check_integrity()


def test_decoding_takes_a_block_only_when_the_last_one_is_full() -> None:
    kv = make_kv()
    request = make_request("a", prompt=list(range(55)))
    start(kv, request)
    for token_id in range(9):
        request.append_output_token_id(token_id)
    assert kv.allocate_slots(request, 9) == []
    assert hits_after(kv, request) == [1, 2, 3, 4]
    request.num_computed_tokens += 9
    request.append_output_token_id(9)
    assert kv.allocate_slots(request, 1) == [5]
    assert hits_after(kv, request) == [1, 2, 3, 4]
    kv.check_integrity()


def test_a_block_with_tokens_in_flight_is_published_when_they_are_known() -> None:
    kv = make_kv(block_size=4)
    request = make_request("a", prompt=[1, 2, 3])
    start(kv, request)
    assert kv.allocate_slots(request, 1) == []
    request.num_computed_tokens += 1
    assert hits_after(kv, request, 4) == []
    request.append_output_token_id(4)
    assert kv.allocate_slots(request, 1) == [2]
    assert kv.get_computed_blocks(make_request("b", prompt=[1, 2, 3, 4, 5])) == [1]


def test_a_block_can_be_published_as_soon_as_its_last_token_is_known() -> None:
    kv = make_kv(block_size=4)
    request = make_request("a", prompt=[1, 2, 3])
    start(kv, request)
    kv.allocate_slots(request, 1)
    request.num_computed_tokens += 1
    request.append_output_token_id(4)
    kv.cache_blocks(request, 3)
    assert hits_after(kv, request) == []
    kv.cache_blocks(request, 4)
    assert kv.get_computed_blocks(make_request("b", prompt=[1, 2, 3, 4, 5])) == [1]


def test_a_freed_request_does_not_publish_its_last_token() -> None:
    kv = make_kv(block_size=4)
    request = make_request("a", prompt=[1, 2, 3])
    start(kv, request)
    request.append_output_token_id(4)
    request.num_computed_tokens += 1  # scheduled ahead, and dropped
    kv.free(request)
    assert kv.get_computed_blocks(make_request("b", prompt=[1, 2, 3, 4, 5])) == []


def test_a_failed_allocation_touches_nothing() -> None:
    kv = make_kv(num_blocks=7)
    first = make_request("a", prompt=COMMON)
    start(kv, first)
    start(kv, make_request("b", prompt=[500] * 40))
    long = make_request("c", prompt=[*COMMON, *[100] * 17])
    hits = kv.get_computed_blocks(long)
    assert hits == [1, 2, 3]
    assert kv.allocate_slots(long, 17, hits) is None
    assert [kv.block_pool.ref_count(b) for b in hits] == [1, 1, 1]
    assert kv.blocks_held(long) == 0
    kv.check_integrity()


def test_hits_that_nobody_holds_count_against_the_free_blocks() -> None:
    kv = make_kv(num_blocks=5)
    first = make_request("a", prompt=COMMON)
    start(kv, first)
    kv.free(first)
    longer = make_request("b", prompt=[*COMMON, *[100] * 17])
    hits = kv.get_computed_blocks(longer)
    assert kv.num_free_blocks == 4
    assert not kv.can_hold_all_tokens(longer, hits)
    assert kv.allocate_slots(longer, 17, hits) is None
    assert kv.allocate_slots(longer, 16, hits) == [4]
    kv.check_integrity()


def test_only_hits_that_somebody_holds_are_in_use() -> None:
    kv = make_kv()
    first = make_request("a", prompt=COMMON)
    second = make_request("b", prompt=[*COMMON, 100])
    start(kv, first)
    assert kv.cached_in_use(second) == 3
    kv.free(first)
    assert kv.cached_in_use(second) == 0


def test_a_salt_shares_only_with_itself() -> None:
    kv = make_kv()
    start(kv, make_request("a", prompt=COMMON, cache_salt="salt1"))
    for salt, num_hits in (("salt1", 2), ("salt2", 0), (None, 0)):
        probe = make_request("b", prompt=COMMON, cache_salt=salt)
        assert len(kv.get_computed_blocks(probe)) == num_hits


def test_without_caching_nothing_is_published_or_hit() -> None:
    kv = make_kv(enable_prefix_caching=False)
    request = make_request("a", prompt=COMMON)
    start(kv, request)
    kv.free(request)
    assert kv.get_computed_blocks(make_request("b", prompt=COMMON)) == []
    assert request.block_hashes == []


def test_a_full_pool_says_no() -> None:
    kv = make_kv(enable_prefix_caching=False)
    start(kv, make_request("a", prompt=list(range(160))))
    assert start(kv, make_request("b", prompt=[1])) is None


def test_freeing_a_request_without_blocks_changes_nothing() -> None:
    kv = make_kv()
    kv.free(make_request("a"))
    assert kv.num_free_blocks == 10


def test_integrity_notices_a_block_held_by_no_table() -> None:
    kv = make_kv()
    kv.block_pool.allocate(1)
    with pytest.raises(AssertionError, match="block 1: 0 tables"):
        kv.check_integrity()
