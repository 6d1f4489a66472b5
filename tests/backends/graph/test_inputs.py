"""Padded inputs: every value, at the edges of block and bucket."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.backends.graph.inputs import (
    PAD_SLOT_ID,
    StepTokens,
    decode_inputs,
    empty_inputs,
    fill_decode_inputs,
    fill_prefill_inputs,
    input_shapes,
    prefill_inputs,
    slot_mapping,
)
from neuron_llm.scheduler import NULL_BLOCK_ID, DecodeBucket, PrefillBucket


def test_slots_of_the_worked_example() -> None:
    assert slot_mapping([7, 2], np.array([3, 4]), block_size=4).tolist() == [31, 8]


def test_position_past_the_block_table_is_an_error() -> None:
    with pytest.raises(IndexError):
        slot_mapping([7], np.array([4]), block_size=4)


def test_prefill_of_200_tokens_in_a_bucket_of_256() -> None:
    blocks = list(range(1, 14))
    inputs = prefill_inputs(
        PrefillBucket(256),
        StepTokens([9] * 200, 0, blocks),
        max_model_len=512,
        block_size=16,
    )
    assert inputs.input_ids.tolist() == [9] * 200 + [0] * 56
    assert inputs.positions.tolist() == [*range(200), *[199] * 56]
    assert inputs.slot_mapping.tolist() == [*range(16, 216), *[PAD_SLOT_ID] * 56]
    assert inputs.block_tables.tolist() == [blocks + [NULL_BLOCK_ID] * (32 - 13)]
    assert inputs.context_lens.tolist() == [200]
    assert inputs.logits_indices.tolist() == [199]


def test_second_chunk_continues_positions_and_slots() -> None:
    inputs = prefill_inputs(
        PrefillBucket(8), StepTokens([5, 6, 7], 6, [3, 1, 2]), max_model_len=16, block_size=4
    )
    assert inputs.positions.tolist() == [6, 7, 8, 8, 8, 8, 8, 8]
    assert inputs.slot_mapping.tolist() == [6, 7, 8, -1, -1, -1, -1, -1]
    assert inputs.context_lens.tolist() == [9]
    assert inputs.logits_indices.tolist() == [2]


def test_decode_pads_rows_and_repeats_the_last_real_index() -> None:
    rows = [StepTokens([11], 3, [5]), StepTokens([12], 4, [6, 7]), StepTokens([13], 0, [8])]
    inputs = decode_inputs(DecodeBucket(4, 16), rows, block_size=4)
    assert inputs.input_ids.tolist() == [11, 12, 13, 0]
    assert inputs.positions.tolist() == [3, 4, 0, 0]
    assert inputs.slot_mapping.tolist() == [23, 28, 32, PAD_SLOT_ID]
    assert inputs.block_tables.tolist() == [[5, 0, 0, 0], [6, 7, 0, 0], [8, 0, 0, 0], [0, 0, 0, 0]]
    assert inputs.context_lens.tolist() == [4, 5, 1, 0]
    assert inputs.logits_indices.tolist() == [0, 1, 2, 2]


def test_block_table_is_cut_to_the_context_bucket() -> None:
    # A request may hold blocks for tokens to come; a small context bucket has no columns for them.
    inputs = decode_inputs(DecodeBucket(1, 8), [StepTokens([1], 7, [4, 5, 6])], block_size=4)
    assert inputs.block_tables.tolist() == [[4, 5]]


def test_context_longer_than_the_bucket_is_refused() -> None:
    with pytest.raises(AssertionError):
        decode_inputs(DecodeBucket(1, 8), [StepTokens([1], 8, [4, 5, 6])], block_size=4)


@given(
    block_size=st.sampled_from([1, 4, 16]),
    num_computed=st.integers(0, 40),
    num_tokens=st.integers(1, 32),
)
def test_prefill_shapes_are_the_buckets_and_no_two_real_tokens_share_a_slot(
    block_size: int, num_computed: int, num_tokens: int
) -> None:
    bucket, max_model_len = PrefillBucket(32), 80
    num_blocks = -(-(num_computed + num_tokens) // block_size)
    chunk = StepTokens([1] * num_tokens, num_computed, list(range(1, 1 + num_blocks)))
    inputs = prefill_inputs(bucket, chunk, max_model_len=max_model_len, block_size=block_size)
    shapes = input_shapes(bucket, max_model_len=max_model_len, block_size=block_size)
    assert [tuple(t.shape) for t in inputs.as_tuple()] == list(shapes.values())
    assert {t.dtype for t in inputs.as_tuple()} == {torch.int32}
    real = inputs.slot_mapping[:num_tokens].tolist()
    assert len(set(real)) == num_tokens and min(real) >= block_size
    assert set(inputs.slot_mapping[num_tokens:].tolist()) <= {PAD_SLOT_ID}


def test_inputs_that_are_filled_again_keep_nothing_of_the_step_before() -> None:
    sizes = {"max_model_len": 64, "block_size": 4}
    prefill, decode = PrefillBucket(8), DecodeBucket(4, 64)
    long, short = StepTokens([5] * 8, 24, list(range(1, 9))), StepTokens([6, 7], 0, [9])
    again = fill_prefill_inputs(empty_inputs(prefill, **sizes), long, block_size=4)
    fill_prefill_inputs(again, short, block_size=4)
    new = prefill_inputs(prefill, short, **sizes)
    assert all(map(torch.equal, again.as_tuple(), new.as_tuple()))
    rows = [StepTokens([token], 20 + token, list(range(1, 9))) for token in range(4)]
    again = fill_decode_inputs(empty_inputs(decode, **sizes), rows, block_size=4)
    row = [StepTokens([7], 2, [9])]
    fill_decode_inputs(again, row, block_size=4)
    new = decode_inputs(decode, row, block_size=4)
    assert all(map(torch.equal, again.as_tuple(), new.as_tuple()))
