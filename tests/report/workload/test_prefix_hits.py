"""What a prefix cache would spare: worked numbers, and the scheduler's own cache as the judge."""

from __future__ import annotations

from itertools import chain, count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.workload.prefix_hits import PrefillWork, all_computed, computed_after_hits
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.scheduler.kv_cache_manager import KVCacheManager
from neuron_llm.scheduler.request import Request

BLOCK_SIZE = 4


def make_trace(*prompts: list[int]) -> Trace:
    """Return a trace of these token ids; a block's id stands for it and all before it."""
    ids: dict[tuple[int, ...], int] = {}
    numbers = count()
    requests = []
    for line, prompt in enumerate(prompts, start=2):
        ends = [*range(BLOCK_SIZE, len(prompt), BLOCK_SIZE), len(prompt)]
        for end in ends:
            if tuple(prompt[:end]) not in ids:
                ids[tuple(prompt[:end])] = next(numbers)
        hash_ids = tuple(ids[tuple(prompt[:end])] for end in ends)
        requests.append(TraceRequest(0.0, len(prompt), None, hash_ids, line))
    return Trace("neuron-llm", tuple(requests), (), BLOCK_SIZE, 0)


def hits_of_scheduler(prompts: list[list[int]], num_blocks: int | None) -> list[int]:
    """Run the prompts one after another through the scheduler's cache."""
    if num_blocks is None:
        num_blocks = sum(len(prompt) // BLOCK_SIZE + 1 for prompt in prompts) + 1
    manager = KVCacheManager(num_blocks + 1, BLOCK_SIZE, enable_prefix_caching=True)
    hits = []
    for index, prompt in enumerate(prompts):
        request = Request(f"r{index}", prompt, 1)
        blocks = manager.get_computed_blocks(request)
        num_cached = len(blocks) * BLOCK_SIZE
        assert manager.allocate_slots(request, len(prompt) - num_cached, blocks) is not None
        manager.free(request)
        hits.append(num_cached)
    return hits


def cached(trace: Trace, block_size: int = BLOCK_SIZE, tokens: int | None = None) -> list[int]:
    return list(
        computed_after_hits(trace, block_size=block_size, cache_tokens=tokens).num_cached_tokens
    )


def test_only_full_blocks_are_found_and_the_last_token_is_always_computed() -> None:
    eight, nine = [*range(8)], [*range(9)]
    assert cached(make_trace(eight, eight)) == [0, 4]
    assert cached(make_trace(nine, nine)) == [0, 8]
    assert cached(make_trace([1, 2, 3], [1, 2, 3])) == [0, 0]


def test_work_and_hits_are_the_prompt() -> None:
    trace = make_trace([*range(9)], [*range(9)], [*range(9), 50, 51], [7] * 5)
    work = computed_after_hits(trace, block_size=BLOCK_SIZE)
    assert work == PrefillWork([9, 1, 3, 5], [0, 8, 8, 0])
    assert work.lengths.counts == {1: 1, 3: 1, 5: 1, 9: 1}
    assert work.cached_tokens == {1: 8, 3: 8}


def test_larger_blocks_than_those_of_the_trace_share_less() -> None:
    trace = make_trace([*range(24)], [*range(24)], [*range(13), *range(50, 60)])
    assert cached(trace, block_size=4) == [0, 20, 12]
    assert cached(trace, block_size=8) == [0, 16, 8]
    assert cached(trace, block_size=24) == [0, 0, 0]


def test_smaller_blocks_than_those_of_the_trace_share_what_is_known() -> None:
    assert cached(make_trace([*range(7)], [*range(7)]), block_size=1) == [0, 4]
    assert cached(make_trace([*range(8)], [*range(8)]), block_size=1) == [0, 7]


def test_trace_without_hash_ids_is_computed_whole() -> None:
    requests = (TraceRequest(0.0, 9, None, (), 2), TraceRequest(0.0, 9, None, (), 3))
    trace = Trace("neuron-llm", requests, (), None, 0)
    assert computed_after_hits(trace, block_size=4) == PrefillWork([9, 9], [0, 0])
    assert all_computed(trace) == PrefillWork([9, 9], [0, 0])


def test_request_without_hash_ids_finds_nothing_and_leaves_nothing() -> None:
    known = make_trace([*range(9)]).requests[0]
    unknown = TraceRequest(0.0, 9, None, (), 3)
    trace = Trace("neuron-llm", (known, unknown, known), (), BLOCK_SIZE, 0)
    assert cached(trace) == [0, 0, 8]


def test_small_cache_forgets_the_least_recent_and_of_a_prompt_its_end() -> None:
    first, second = [*range(9)], [*range(100, 109)]
    # Each prompt takes two full blocks and one that nobody finds again.
    trace = make_trace(first, second, first)
    assert cached(trace, tokens=6 * BLOCK_SIZE) == [0, 0, 8]
    assert cached(trace, tokens=4 * BLOCK_SIZE) == [0, 0, 4]
    assert cached(trace, tokens=3 * BLOCK_SIZE) == [0, 0, 0]


@pytest.mark.parametrize("num_blocks", [0, 1, 2])
def test_cache_smaller_than_a_prompt_keeps_its_beginning(num_blocks: int) -> None:
    trace = make_trace([*range(13)], [*range(13)])
    kept = max(num_blocks - 1, 0) * BLOCK_SIZE
    assert cached(trace, tokens=num_blocks * BLOCK_SIZE) == [0, kept]


def prompts(last_block_is_full: bool) -> st.SearchStrategy[list[list[int]]]:
    """Draw prompts of at most 5 blocks that often begin alike."""
    block = st.sampled_from([[1] * BLOCK_SIZE, [2] * BLOCK_SIZE, [1, 2, 1, 2]])
    rest = st.integers(0 if last_block_is_full else 1, BLOCK_SIZE - 1).map(lambda n: [3] * n)
    blocks = st.lists(block, max_size=4).map(lambda parts: [*chain(*parts)])
    return st.lists(st.tuples(blocks, rest).map(lambda p: p[0] + p[1]).filter(bool), max_size=25)


@given(prompts(last_block_is_full=True))
def test_hits_in_a_large_cache_are_those_of_the_scheduler(drawn: list[list[int]]) -> None:
    assert cached(make_trace(*drawn)) == hits_of_scheduler(drawn, None)


@given(prompts(last_block_is_full=False), st.integers(5, 16))
def test_hits_in_a_small_cache_are_those_of_the_scheduler(
    drawn: list[list[int]], num_blocks: int
) -> None:
    # A full last block of a prompt seen before is computed into a second block of the same content,
    # which takes a place in the scheduler's cache and none here.
    found = cached(make_trace(*drawn), tokens=num_blocks * BLOCK_SIZE)
    assert found == hits_of_scheduler(drawn, num_blocks)
