"""`paged_attention` against exact attention and against its aten twin, on every level."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from attention_case import BLOCK_SIZE, PLAIN, VARIANTS, Arguments, Heads, PagedCase, Variant
from level_libraries import level_library

from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.operators.registration import use_library
from neuron_llm.backends.graph.attention import AttentionContext
from neuron_llm.backends.graph.attention import paged_attention as aten_paged_attention

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
HEAD_COUNTS = ((9, 3), (14, 2), (8, 8), (1, 1))
HEAD_DIMS = (8, 16, 24, 64, 80, 128, 256, 512)
# Around blocks of 16 and partitions of 128 keys.
LENGTHS = [1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 255, 256, 257, 384, 385]


@pytest.fixture(scope="module", params=list(IsaLevel), autouse=True)
def level(request: pytest.FixtureRequest) -> IsaLevel:
    use_library(level_library(request.param, request.config))
    return IsaLevel(request.param)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_decode_rows_are_exact_at_every_edge(dtype: torch.dtype, variant: Variant) -> None:
    case = PagedCase(LENGTHS, dtype=dtype)
    for index, length in enumerate(LENGTHS):
        case.fill(index, length - 1)
    arguments = case.decode([(i, length - 1) for i, length in enumerate(LENGTHS)], num_padded=2)
    output = case.run(arguments, variant)
    for index, length in enumerate(LENGTHS):
        case.check(output[index : index + 1], index, [length - 1], variant)
    assert torch.equal(output[len(LENGTHS) :], torch.zeros_like(output[:2]))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_prefill_chunks_are_exact_at_every_edge(dtype: torch.dtype, variant: Variant) -> None:
    for num_prior, num_tokens in [(0, 5), (0, 129), (15, 2), (100, 40), (127, 17), (300, 90)]:
        case = PagedCase([num_prior + num_tokens], dtype=dtype)
        case.fill(0, num_prior)
        end = num_prior + num_tokens
        output = case.run(case.prefill(0, num_prior, end, num_padded=3), variant)
        case.check(output[:num_tokens], 0, list(range(num_prior, end)), variant)
        assert torch.equal(output[num_tokens:], torch.zeros_like(output[:3]))


@pytest.mark.parametrize("head_counts", HEAD_COUNTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_number_and_size_of_heads(dtype: torch.dtype, head_counts: tuple[int, int]) -> None:
    for head_dim in HEAD_DIMS:
        case = PagedCase([150], Heads(*head_counts, head_dim), dtype)
        case.fill(0, 140)
        case.check(case.run(case.prefill(0, 140, 149)), 0, list(range(140, 149)))
        case.check(case.run(case.decode([(0, 149)])), 0, [149])


def test_scores_of_any_size_give_a_mean_of_values() -> None:
    for factor in (1e-30, 1e-3, 100.0, 1e5):
        case = PagedCase([200])
        case.sequences[0].query *= factor
        output = case.run(case.prefill(0, 0, 200))
        value = case.sequences[0].value
        assert output.isfinite().all() and output.abs().max() <= value.abs().max()
        if factor < 1:
            continue
        # One key outweighs all others by so much that the result is its value.
        query, key = case.sequences[0].query[199, 0], case.sequences[0].key[:, 0]
        winner = (key.double() @ query.double()).argmax()
        if factor == 1e5:
            torch.testing.assert_close(output[199, 0], value[winner, 0])


def test_infinite_and_undefined_numbers_act_as_in_softmax() -> None:
    case = PagedCase([140])
    sequence = case.sequences[0]
    sequence.key[130] = math.nan
    sequence.value[20, 0, 5] = math.inf
    output = case.run(case.prefill(0, 0, 140))
    assert output[:20].isfinite().all()
    assert (output[20:130, :3, 5] == math.inf).all()
    assert output[20:130, 3:].isfinite().all() and output[20:130, :3, :5].isfinite().all()
    assert output[130:].isnan().all()


Run = Callable[[PagedCase, Arguments, Variant], torch.Tensor]


class Layer(torch.nn.Module):
    layer_idx = 0


def run_aten(case: PagedCase, arguments: Arguments, variant: Variant) -> torch.Tensor:
    """Call the twin on the same caches, which it changes."""
    context = AttentionContext(
        [case.key_cache],
        [case.value_cache],
        positions=arguments.positions,
        slot_mapping=arguments.slot_mapping,
        block_tables=arguments.block_tables,
        context_lens=arguments.context_lens,
    )
    output, _ = aten_paged_attention(
        Layer(),
        arguments.query.transpose(0, 1)[None],
        arguments.key.transpose(0, 1)[None],
        arguments.value.transpose(0, 1)[None],
        None,
        case.heads.head_dim**-0.5,
        attention_context=context,
        sliding_window=variant.sliding_window or None,
        softcap=variant.softcap or None,
        s_aux=variant.sinks(case.heads),
    )
    return output[0]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("is_decode", [True, False], ids=["decode", "prefill"])
def test_operator_and_aten_twin_agree_on_results_and_caches(
    is_decode: bool, variant: Variant
) -> None:
    cases = [PagedCase([37, 130, 4]) for _ in range(2)]
    runs: list[Run] = [PagedCase.run, run_aten]
    outputs = []
    for case, run in zip(cases, runs, strict=True):
        if is_decode:
            for index, end in enumerate([36, 129, 3]):
                case.fill(index, end)
            arguments = case.decode([(0, 36), (1, 129), (2, 3)], num_padded=1)
        else:
            case.fill(1, 70)
            arguments = case.prefill(1, 70, 130, num_padded=4)
        num_padded = int((arguments.slot_mapping < 0).sum())
        outputs.append(run(case, arguments, variant)[: len(arguments.query) - num_padded])
    torch.testing.assert_close(*outputs, atol=2e-6, rtol=1e-5)
    for name in ("key_cache", "value_cache"):
        ours, theirs = (getattr(case, name) for case in cases)
        torch.testing.assert_close(ours, theirs, atol=0, rtol=0, equal_nan=True)


def test_only_the_slots_of_real_tokens_are_written() -> None:
    case = PagedCase([40])
    case.fill(0, 14)
    before = case.key_cache.clone()
    arguments = case.prefill(0, 14, 18, num_padded=2)
    case.run(arguments)
    changed = (case.key_cache.nan_to_num(9.0) != before.nan_to_num(9.0)).flatten(2).any(-1)
    slots = [block * BLOCK_SIZE + offset for block, offset in changed.nonzero().tolist()]
    assert sorted(slots) == sorted(arguments.slot_mapping[:4].tolist())
    assert torch.equal(case.key_cache.flatten(0, 1)[slots], arguments.key[:4][_rank(arguments)])


def _rank(arguments: Arguments) -> torch.Tensor:
    return arguments.slot_mapping[:4].argsort()


def test_tokens_of_one_sequence_in_one_decode_call_see_each_other() -> None:
    case = PagedCase([133])
    case.fill(0, 126)
    rows = [(0, position) for position in (130, 127, 132, 126, 129, 131, 128)]
    output = case.run(case.decode(rows))
    for row, (index, position) in enumerate(rows):
        case.check(output[row : row + 1], index, [position])


def test_a_row_without_context_gives_zeros_and_is_written() -> None:
    case = PagedCase([20, 3])
    case.fill(0, 19)
    arguments = case.decode([(0, 19), (1, 0)])
    arguments.context_lens[1] = 0
    output = case.run(arguments)
    assert output[0].any() and not output[1].any()
    slot = int(arguments.slot_mapping[1])
    assert torch.equal(case.key_cache.flatten(0, 1)[slot], arguments.key[1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sinks_may_have_any_floating_dtype(dtype: torch.dtype) -> None:
    variant = Variant(has_sinks=True)
    case = PagedCase([30])
    *operands, sinks = case.operands(case.prefill(0, 0, 30), variant)
    rounded = sinks.to(dtype)
    output = torch.ops.neuron_llm.paged_attention(*operands, rounded)
    expected = torch.ops.neuron_llm.paged_attention(*operands, rounded.float())
    assert torch.equal(output, expected)
    assert not torch.equal(output, case.run(case.prefill(0, 0, 30), PLAIN))
