from __future__ import annotations

import pytest

from neuron_llm.errors import OutOfBlocksError
from neuron_llm.scheduler import NULL_BLOCK_ID, BlockPool
from neuron_llm.scheduler.block_pool import ceil_div, hash_block, num_blocks_for


@pytest.mark.parametrize(
    ("num_tokens", "num_blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)]
)
def test_blocks_are_counted_up(num_tokens: int, num_blocks: int) -> None:
    assert num_blocks_for(num_tokens, block_size=4) == num_blocks


def test_quotients_are_rounded_up_and_exact_where_a_float_is_not() -> None:
    assert [ceil_div(n, 32) for n in (0, 1, 64, 65)] == [0, 1, 2, 3]
    assert ceil_div(2**62 + 1, 2) == 2**61 + 1


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(num_blocks=5)
    assert NULL_BLOCK_ID == 0
    assert pool.num_usable_blocks == pool.num_free_blocks == 4
    assert pool.allocate(4) == [1, 2, 3, 4]
    pool.check_integrity()
    with pytest.raises(OutOfBlocksError, match="1 blocks are needed and 0 are free"):
        pool.allocate(1)


def test_a_failed_allocation_takes_nothing() -> None:
    pool = BlockPool(num_blocks=4)
    with pytest.raises(OutOfBlocksError):
        pool.allocate(4)
    pool.check_integrity()
    assert pool.allocate(3) == [1, 2, 3]


def test_allocating_no_block_works_on_a_full_pool() -> None:
    pool = BlockPool(num_blocks=2)
    pool.allocate(1)
    assert pool.allocate(0) == []


def test_a_pool_needs_a_usable_block() -> None:
    with pytest.raises(AssertionError):
        BlockPool(num_blocks=1)


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(num_blocks=3)
    (block_id,) = pool.allocate(1)
    pool.touch([block_id])
    assert pool.ref_count(block_id) == 2
    pool.free([block_id])
    assert pool.num_free_blocks == 1
    pool.free([block_id])
    assert pool.num_free_blocks == 2
    pool.check_integrity()


def test_published_blocks_go_to_the_end_of_the_queue_and_others_to_its_front() -> None:
    pool = BlockPool(num_blocks=5)
    first, second = pool.allocate(2)
    pool.cache_full_blocks([first], [hash_block(None, [1, 2])])
    pool.free([first, second])
    assert pool.allocate(4) == [second, 3, 4, first]


def test_a_freed_block_is_found_until_it_is_handed_out_again() -> None:
    pool = BlockPool(num_blocks=2)
    block_hash = hash_block(None, [1, 2])
    (block_id,) = pool.allocate(1)
    pool.cache_full_blocks([block_id], [block_hash])
    pool.free([block_id])
    assert pool.get_cached_block(block_hash) == block_id
    assert pool.allocate(1) == [block_id]
    assert pool.get_cached_block(block_hash) is None
    pool.check_integrity()


def test_taking_a_free_hit_removes_it_from_the_middle_of_the_queue() -> None:
    pool = BlockPool(num_blocks=6)
    block_ids = pool.allocate(5)
    pool.cache_full_blocks(block_ids, [hash_block(None, [block_id]) for block_id in block_ids])
    pool.free(block_ids)
    pool.touch([3])
    assert pool.allocate(4) == [1, 2, 4, 5]
    assert pool.get_cached_block(hash_block(None, [3])) == 3
    pool.check_integrity()


def test_one_of_two_copies_is_found_when_the_other_is_evicted() -> None:
    pool = BlockPool(num_blocks=3)
    block_hash = hash_block(None, [1, 2])
    first, second = pool.allocate(2)
    pool.cache_full_blocks([first, second], [block_hash, block_hash])
    pool.free([first])
    assert pool.allocate(1) == [first]
    assert pool.get_cached_block(block_hash) == second
    pool.check_integrity()


def test_the_cache_is_reset_only_while_nobody_holds_a_block() -> None:
    pool = BlockPool(num_blocks=3)
    block_hash = hash_block(None, [1, 2])
    block_ids = pool.allocate(1)
    pool.cache_full_blocks(block_ids, [block_hash])
    assert not pool.reset_prefix_cache()
    assert pool.get_cached_block(block_hash) == block_ids[0]
    pool.free(block_ids)
    assert pool.reset_prefix_cache()
    assert pool.get_cached_block(block_hash) is None
    pool.check_integrity()


def test_a_free_or_published_block_is_not_published() -> None:
    pool = BlockPool(num_blocks=3)
    with pytest.raises(AssertionError):
        pool.cache_full_blocks([1], [hash_block(None, [1])])
    (block_id,) = pool.allocate(1)
    pool.cache_full_blocks([block_id], [hash_block(None, [1])])
    with pytest.raises(AssertionError):
        pool.cache_full_blocks([block_id], [hash_block(None, [2])])


def test_every_published_block_has_a_hash_of_its_own() -> None:
    pool = BlockPool(num_blocks=3)
    with pytest.raises(ValueError):
        pool.cache_full_blocks(pool.allocate(2), [hash_block(None, [1])])


def test_integrity_notices_a_block_freed_twice() -> None:
    pool = BlockPool(num_blocks=3)
    block_ids = pool.allocate(1)
    pool.free(block_ids)
    pool.free(block_ids)
    with pytest.raises(AssertionError, match="freed more often than held"):
        pool.check_integrity()


def test_a_block_hash_tells_tokens_parents_and_salts_apart() -> None:
    first = hash_block(None, [1, 2, 3])
    assert first == hash_block(None, [1, 2, 3])
    assert len(first) == 32
    others = [
        hash_block(None, [1, 2, 4]),
        hash_block(None, [2, 1, 3]),
        hash_block(first, [1, 2, 3]),
        hash_block(None, [1, 2, 3], salt="a"),
        hash_block(None, [1, 2, 3], salt="b"),
        hash_block(hash_block(None, [1], salt="a"), [1, 2, 3]),
        hash_block(hash_block(None, [1], salt="b"), [1, 2, 3]),
    ]
    assert len({first, *others}) == 8


def test_only_the_first_block_is_salted() -> None:
    with pytest.raises(AssertionError):
        hash_block(hash_block(None, [1]), [2], salt="a")
