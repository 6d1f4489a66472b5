"""The padded inputs of a bucket graph: the one place where tensors that enter a graph are made.

Padding, per tensor: `input_ids` 0; `positions` the last real position (prefill) or 0 (decode);
`slot_mapping` `PAD_SLOT_ID`, which writes nowhere; `block_tables` the null block; `context_lens` 0;
`logits_indices` the last real index repeated. All index tensors are int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from neuron_llm.scheduler.block_pool import NULL_BLOCK_ID
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


def blocks_per_seq(max_context_tokens: int, block_size: int) -> int:
    """Return the width of a block table: the blocks that hold `max_context_tokens`."""
    return -(-max_context_tokens // block_size)


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
        "block_tables": (num_seqs, blocks_per_seq(context_tokens, block_size)),
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


def prefill_inputs(
    bucket: PrefillBucket, chunk: StepTokens, *, max_model_len: int, block_size: int
) -> GraphInputs:
    """Build the inputs of a prefill graph from one request's chunk.

    200 tokens in a bucket of 256 give positions [0, ..., 199, 199, ..., 199] and 56 slots of -1.

    Args:
        bucket: its `num_tokens` is the scheduler's padded count.
        chunk: at most `bucket.num_tokens` tokens.
        max_model_len: sets the width of the block table.
        block_size: tokens per block.
    """
    num_tokens = len(chunk.token_ids)
    assert 0 < num_tokens <= bucket.num_tokens, (num_tokens, bucket)
    first = chunk.num_computed_tokens
    positions = np.arange(first, first + num_tokens, dtype=np.int32)
    return _inputs(
        input_ids=_padded(np.asarray(chunk.token_ids), bucket.num_tokens, 0),
        positions=_padded(positions, bucket.num_tokens, first + num_tokens - 1),
        slot_mapping=_padded(
            slot_mapping(chunk.block_ids, positions, block_size), bucket.num_tokens, PAD_SLOT_ID
        ),
        block_tables=_block_tables([chunk], 1, blocks_per_seq(max_model_len, block_size)),
        context_lens=np.array([first + num_tokens], dtype=np.int32),
        logits_indices=np.array([num_tokens - 1], dtype=np.int32),
    )


def decode_inputs(
    bucket: DecodeBucket, rows: Sequence[StepTokens], *, block_size: int
) -> GraphInputs:
    """Build the inputs of a decode graph from one token of each running request.

    Args:
        bucket: holds `len(rows)` rows and the longest row's context.
        rows: one `StepTokens` of one token per request.
        block_size: tokens per block.
    """
    num_seqs = len(rows)
    assert 0 < num_seqs <= bucket.batch_size, (num_seqs, bucket)
    assert all(len(row.token_ids) == 1 for row in rows)
    positions = np.array([row.num_computed_tokens for row in rows], dtype=np.int32)
    assert positions.max() < bucket.max_context_tokens, (positions.max(), bucket)
    slots = [
        row.block_ids[row.num_computed_tokens // block_size] * block_size
        + row.num_computed_tokens % block_size
        for row in rows
    ]
    size = bucket.batch_size
    width = blocks_per_seq(bucket.max_context_tokens, block_size)
    return _inputs(
        input_ids=_padded(np.array([row.token_ids[0] for row in rows]), size, 0),
        positions=_padded(positions, size, 0),
        slot_mapping=_padded(np.array(slots), size, PAD_SLOT_ID),
        block_tables=_block_tables(rows, size, width),
        context_lens=_padded(positions + 1, size, 0),
        logits_indices=_padded(np.arange(num_seqs), size, num_seqs - 1),
    )


def _padded(values: np.ndarray, size: int, fill: int) -> np.ndarray:
    padded = np.full(size, fill, dtype=np.int32)
    padded[: len(values)] = values
    return padded


def _block_tables(rows: Sequence[StepTokens], num_seqs: int, width: int) -> np.ndarray:
    tables = np.full((num_seqs, width), NULL_BLOCK_ID, dtype=np.int32)
    for table, row in zip(tables, rows, strict=False):
        table[: len(row.block_ids)] = row.block_ids[:width]
    return tables


def _inputs(**arrays: np.ndarray) -> GraphInputs:
    return GraphInputs(**{name: torch.from_numpy(array) for name, array in arrays.items()})
