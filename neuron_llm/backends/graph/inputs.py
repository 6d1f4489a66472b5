"""The padded inputs of a bucket graph: the one place where tensors that enter a graph are filled.

Padding, per tensor: `input_ids` 0; `positions` the last real position (prefill) or 0 (decode);
`slot_mapping` `PAD_SLOT_ID`, which writes nowhere; `block_tables` the null block; `context_lens` 0;
`logits_indices` the last real index repeated. All index tensors are int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from neuron_llm.scheduler.block_pool import NULL_BLOCK_ID, num_blocks_for
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket

PAD_SLOT_ID = -1


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a configuration's dtype name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


@dataclass(frozen=True)
class GraphInputs:
    """The index tensors of one graph call, all int32.

    Attributes:
        input_ids: `[num_tokens]`.
        positions: `[num_tokens]`.
        slot_mapping: `[num_tokens]`.
        block_tables: `[num_seqs, max_blocks_per_seq]`.
        context_lens: `[num_seqs]`, this step's tokens included.
        logits_indices: `[num_seqs]`.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    context_lens: torch.Tensor
    logits_indices: torch.Tensor

    def as_tuple(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors in the order of the graph's parameters."""
        return (
            self.input_ids,
            self.positions,
            self.slot_mapping,
            self.block_tables,
            self.context_lens,
            self.logits_indices,
        )


@dataclass(frozen=True)
class StepTokens:
    """One request's share of a step.

    Attributes:
        token_ids: the tokens to compute; exactly one in a decode step.
        num_computed_tokens: tokens of the request whose KV is in the cache already.
        block_ids: the request's block table; it covers every token up to the last of `token_ids`.
    """

    token_ids: Sequence[int]
    num_computed_tokens: int
    block_ids: Sequence[int]


def num_rows(bucket: Bucket) -> int:
    """Return how many rows of logits a bucket's graph gives."""
    return 1 if isinstance(bucket, PrefillBucket) else bucket.batch_size


def input_shapes(
    bucket: Bucket, *, max_model_len: int, block_size: int
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every index tensor of a bucket's graph, in the graph's order."""
    if isinstance(bucket, PrefillBucket):
        num_tokens, num_seqs, context_tokens = bucket.num_tokens, 1, max_model_len
    else:
        num_tokens, num_seqs = bucket.batch_size, bucket.batch_size
        context_tokens = bucket.max_context_tokens
    return {
        "input_ids": (num_tokens,),
        "positions": (num_tokens,),
        "slot_mapping": (num_tokens,),
        "block_tables": (num_seqs, num_blocks_for(context_tokens, block_size)),
        "context_lens": (num_seqs,),
        "logits_indices": (num_seqs,),
    }


def slot_mapping(block_ids: Sequence[int], positions: np.ndarray, block_size: int) -> np.ndarray:
    """Return the cache slot of each position.

    A slot is `block_ids[p // block_size] * block_size + p % block_size`. With block_size 4 and
    block_ids [7, 2], positions [3, 4] lie in slots [31, 8].

    Raises:
        IndexError: a position lies past the last block of the table.
    """
    table = np.asarray(block_ids, dtype=np.int32)
    slots: np.ndarray = table[positions // block_size] * block_size + positions % block_size
    return slots


def empty_inputs(bucket: Bucket, *, max_model_len: int, block_size: int) -> GraphInputs:
    """Allocate the index tensors of a bucket's graph, to be filled again and again."""
    shapes = input_shapes(bucket, max_model_len=max_model_len, block_size=block_size)
    return GraphInputs(
        **{name: torch.zeros(shape, dtype=torch.int32) for name, shape in shapes.items()}
    )


def fill_prefill_inputs(inputs: GraphInputs, chunk: StepTokens, *, block_size: int) -> GraphInputs:
    """Write the inputs of a prefill graph: one request's chunk, and padding.

    200 tokens in a bucket of 256 give positions [0, ..., 199, 199, ..., 199] and 56 slots of -1.

    Args:
        inputs: of a prefill bucket that holds the chunk; every element is written.
        chunk: the tokens.
        block_size: tokens per block.
    """
    num_tokens = len(chunk.token_ids)
    assert 0 < num_tokens <= len(inputs.input_ids), (num_tokens, len(inputs.input_ids))
    first = chunk.num_computed_tokens
    positions = np.arange(first, first + num_tokens, dtype=np.int32)
    _write(inputs.input_ids, chunk.token_ids, 0)
    _write(inputs.positions, positions, first + num_tokens - 1)
    slots = slot_mapping(chunk.block_ids, positions, block_size)
    _write(inputs.slot_mapping, slots, PAD_SLOT_ID)
    _write_block_tables(inputs.block_tables, [chunk])
    inputs.context_lens.numpy()[0] = first + num_tokens
    inputs.logits_indices.numpy()[0] = num_tokens - 1
    return inputs


def fill_decode_inputs(
    inputs: GraphInputs, rows: Sequence[StepTokens], *, block_size: int
) -> GraphInputs:
    """Write the inputs of a decode graph: one token of each running request, and padding.

    Args:
        inputs: of a decode bucket that holds `len(rows)` rows and the longest row's context; every
            element is written.
        rows: one `StepTokens` of one token per request.
        block_size: tokens per block.
    """
    num_seqs = len(rows)
    assert 0 < num_seqs <= len(inputs.input_ids), (num_seqs, len(inputs.input_ids))
    assert all(len(row.token_ids) == 1 for row in rows)
    positions = np.array([row.num_computed_tokens for row in rows], dtype=np.int32)
    max_context_tokens = inputs.block_tables.shape[1] * block_size
    assert positions.max() < max_context_tokens, (positions.max(), max_context_tokens)
    slots = [
        row.block_ids[row.num_computed_tokens // block_size] * block_size
        + row.num_computed_tokens % block_size
        for row in rows
    ]
    _write(inputs.input_ids, [row.token_ids[0] for row in rows], 0)
    _write(inputs.positions, positions, 0)
    _write(inputs.slot_mapping, slots, PAD_SLOT_ID)
    _write_block_tables(inputs.block_tables, rows)
    _write(inputs.context_lens, positions + 1, 0)
    _write(inputs.logits_indices, np.arange(num_seqs), num_seqs - 1)
    return inputs


def prefill_inputs(
    bucket: PrefillBucket, chunk: StepTokens, *, max_model_len: int, block_size: int
) -> GraphInputs:
    """Return new inputs of a prefill graph, see `fill_prefill_inputs`."""
    inputs = empty_inputs(bucket, max_model_len=max_model_len, block_size=block_size)
    return fill_prefill_inputs(inputs, chunk, block_size=block_size)


def decode_inputs(
    bucket: DecodeBucket, rows: Sequence[StepTokens], *, block_size: int
) -> GraphInputs:
    """Return new inputs of a decode graph, see `fill_decode_inputs`."""
    size = bucket.max_context_tokens
    inputs = empty_inputs(bucket, max_model_len=size, block_size=block_size)
    return fill_decode_inputs(inputs, rows, block_size=block_size)


def _write(tensor: torch.Tensor, values: Sequence[int] | np.ndarray, padding: int) -> None:
    array = tensor.numpy()
    array[: len(values)] = values
    array[len(values) :] = padding


def _write_block_tables(tensor: torch.Tensor, rows: Sequence[StepTokens]) -> None:
    tables = tensor.numpy()
    tables.fill(NULL_BLOCK_ID)
    for table, row in zip(tables, rows, strict=False):
        table[: len(row.block_ids)] = row.block_ids[: len(table)]
