"""Made-up prompts: equal where hash ids say so, and nowhere else."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.report.workload.arrivals import TraceTokens
from neuron_llm.report.workload.trace import Trace, TraceRequest

BLOCK_SIZE = 4


def prompts_of(
    requests: list[tuple[int, tuple[int, ...]]], block_size: int | None = BLOCK_SIZE
) -> list[list[int]]:
    traced = tuple(
        TraceRequest(0.0, length, 1, ids, line) for line, (length, ids) in enumerate(requests)
    )
    tokens = TraceTokens(Trace("made up", traced, (), block_size, 0))
    return [tokens.prompt(request) for request in traced]


def num_shared(one: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def test_a_hash_id_is_a_block_of_distinct_tokens() -> None:
    first, again, longer = prompts_of([(8, (5, 9)), (8, (5, 9)), (10, (5, 9, 2))])
    assert first == again == longer[:8]
    assert len(set(longer)) == 10


def test_the_last_block_may_be_short_or_have_no_id() -> None:
    short, without, more = prompts_of([(6, (1, 2)), (6, (1,)), (6, (1,))])
    assert len(short) == len(without) == len(more) == 6
    assert num_shared(short, without) == num_shared(without, more) == 4


def test_a_request_without_ids_shares_nothing() -> None:
    prompts = prompts_of([(8, ()), (8, ()), (8, (1, 2))])
    assert len(set().union(*prompts)) == 24


def test_ids_may_be_any_numbers() -> None:
    huge, negative = prompts_of([(4, (2**80,)), (4, (-1,))])
    assert min(huge + negative) >= 0 and max(huge + negative) < 2**31
    assert not set(huge) & set(negative)


def test_without_blocks_only_the_length_counts() -> None:
    assert [len(prompt) for prompt in prompts_of([(7, ()), (9, ())], block_size=None)] == [7, 9]


@given(
    st.lists(
        st.tuples(st.integers(1, 24), st.lists(st.integers(0, 3), min_size=6, max_size=6)),
        min_size=2,
        max_size=6,
    )
)
def test_prompts_are_equal_as_far_as_their_ids_are(drawn: list[tuple[int, list[int]]]) -> None:
    requests = [(length, tuple(ids[: -(-length // BLOCK_SIZE)])) for length, ids in drawn]
    prompts = prompts_of(requests)
    for (length, ids), prompt in zip(requests, prompts, strict=True):
        assert len(prompt) == length
        for (other_length, other_ids), other in zip(requests, prompts, strict=True):
            common = num_shared(list(ids), list(other_ids)) * BLOCK_SIZE
            assert num_shared(prompt, other) == min(common, length, other_length)
