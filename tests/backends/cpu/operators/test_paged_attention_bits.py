"""A row's bits depend on that row's own context and nothing else, on every level."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from attention_case import HEADS, VARIANTS, Heads, PagedCase, Variant
from hypothesis import given, settings
from hypothesis import strategies as st
from level_libraries import level_library
from linear_reference import bits

from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.operators.registration import use_library

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LENGTH = 300


@pytest.fixture(scope="module", params=list(IsaLevel), autouse=True)
def level(request: pytest.FixtureRequest) -> IsaLevel:
    use_library(level_library(request.param, request.config))
    return IsaLevel(request.param)


@pytest.fixture
def num_threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def prefill_bits(
    chunks: list[int], dtype: torch.dtype, variant: Variant, heads: Heads = HEADS
) -> torch.Tensor:
    """Prefill a prompt in chunks of these sizes and return the bits of all its rows."""
    case = PagedCase([sum(chunks)], heads, dtype)
    outputs, first = [], 0
    for size in chunks:
        output = case.run(case.prefill(0, first, first + size, num_padded=size % 5), variant)
        outputs.append(output[:size])
        first += size
    return bits(torch.cat(outputs))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cutting_a_prompt_into_chunks_changes_no_bit(dtype: torch.dtype, variant: Variant) -> None:
    whole = prefill_bits([LENGTH], dtype, variant)
    for chunks in ([128, 128, 44], [127, 2, 171], [1, 7, 64, 100, 128], [297, 1, 1, 1]):
        assert torch.equal(whole, prefill_bits(chunks, dtype, variant))


@settings(max_examples=15)
@given(
    chunks=st.lists(st.integers(1, 160), min_size=2, max_size=4),
    heads=st.sampled_from([Heads(14, 2, 24), Heads(8, 8, 16), Heads(1, 1, 80), Heads(4, 2, 128)]),
    dtype=st.sampled_from(DTYPES),
    window=st.integers(0, 200),
)
def test_no_chunks_of_any_model_change_a_bit(
    chunks: list[int], heads: Heads, dtype: torch.dtype, window: int
) -> None:
    variant = Variant(sliding_window=window)
    whole = prefill_bits([sum(chunks)], dtype, variant, heads)
    assert torch.equal(whole, prefill_bits(chunks, dtype, variant, heads))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_decode_and_prefill_give_the_same_bits(dtype: torch.dtype, variant: Variant) -> None:
    expected = prefill_bits([LENGTH], dtype, variant)
    case = PagedCase([LENGTH], dtype=dtype)
    case.fill(0, LENGTH)
    positions = [0, 1, 14, 16, 63, 126, 127, 128, 129, 200, 255, 256, LENGTH - 1]
    output = case.run(case.decode([(0, position) for position in positions]), variant)
    assert torch.equal(bits(output), expected[positions])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_rows_bits_do_not_depend_on_its_batch(dtype: torch.dtype) -> None:
    lengths = [300, 17, 128, 700, 1, 129, 256, 40]
    case = PagedCase(lengths, dtype=dtype)
    for index, length in enumerate(lengths):
        case.fill(index, length - 1)
    rows = [(index, length - 1) for index, length in enumerate(lengths)]
    alone = torch.cat([bits(case.run(case.decode([row]))) for row in rows])
    for batch_size in (2, 4, 8):
        for first in range(0, len(rows), batch_size):
            batch = rows[first : first + batch_size]
            output = case.run(case.decode(batch[::-1], num_padded=first % 3))
            in_order = bits(output)[: len(batch)].flip(0)
            assert torch.equal(in_order, alone[first : first + len(batch)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype, num_threads: int) -> None:
    # Large enough for threads; more of them than tasks, and more than cores, do no harm.
    results = []
    for count in (1, 2, 3, 40):
        torch.set_num_threads(count)
        case = PagedCase([700, 530], dtype=dtype)
        case.fill(0, 699)
        case.fill(1, 400)
        decoded = case.run(case.decode([(0, 699), (1, 400)]))
        prefilled = case.run(case.prefill(1, 400, 530))
        results.append(bits(torch.cat([decoded, prefilled])))
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 6e4])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_a_row_must_not_see_changes_no_bit(dtype: torch.dtype, poison: float) -> None:
    """Unused slots, the null block, what left the window, and later tokens of the same chunk."""
    variant = Variant(sliding_window=30)
    clean = PagedCase([200, 150], dtype=dtype)
    for cache in (clean.key_cache, clean.value_cache):
        cache.zero_()
    clean.fill(0, 199)
    clean.fill(1, 100)
    decoded, prefilled = (
        clean.run(arguments, variant)
        for arguments in (clean.decode([(0, 199)]), clean.prefill(1, 100, 150))
    )

    case = PagedCase([200, 150], dtype=dtype)
    for cache in (case.key_cache, case.value_cache):
        cache.fill_(poison)
    case.fill(0, 199)
    case.fill(1, 100)
    hidden = case.sequences[0].slots(list(range(170))) + case.sequences[1].slots(list(range(71)))
    for cache in (case.key_cache, case.value_cache):
        cache.flatten(0, 1)[hidden] = poison
    arguments = case.prefill(1, 100, 150, num_padded=2)
    arguments.key[33] = arguments.value[33] = poison
    output = case.run(case.decode([(0, 199)]), variant)
    assert torch.equal(bits(output), bits(decoded))
    output = case.run(arguments, variant)
    assert torch.equal(bits(output[:33]), bits(prefilled[:33]))
    assert not torch.equal(output[33:50], prefilled[33:50])


def test_what_stands_behind_the_live_blocks_of_a_table_is_not_looked_at() -> None:
    case = PagedCase([70, 20])
    case.fill(0, 69)
    case.fill(1, 19)
    arguments = case.decode([(0, 69), (1, 19)])
    expected = bits(case.run(arguments))
    for filler in (-1, -(2**31), 2**31 - 1):
        narrow = case.block_tables([0, 1], filler)
        wide = torch.full((2, 500), filler, dtype=torch.int32)
        wide[:, : narrow.shape[1]] = narrow
        arguments.block_tables = wide
        assert torch.equal(bits(case.run(arguments)), expected)


def test_tokens_may_have_any_strides() -> None:
    case = PagedCase([150])
    arguments = case.prefill(0, 0, 150)
    expected = bits(case.run(arguments))
    # As a model hands them over: one tensor `[num_tokens, all heads, head_dim]`, heads first.
    joined = torch.cat([arguments.query, arguments.key, arguments.value], 1)
    by_head = joined.transpose(0, 1).contiguous().transpose(0, 1)
    for tensor in (joined, by_head):
        arguments.query, arguments.key, arguments.value = torch.split(tensor, [9, 3, 3], 1)
        assert not arguments.query.is_contiguous()
        output = case.run(arguments)
        assert output.is_contiguous() and torch.equal(bits(output), expected)
