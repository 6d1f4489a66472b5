"""Paged attention as a pure function, in operators that lower to one static XLA module.

The same computation as `backends/graph/attention.py`, for a device that it does not suit: caches
are replaced instead of written in place, every constant is made on the device and in the dtype of
what it meets (a Python number beside an int32 tensor would become int64 arithmetic, and a float
one float64), and keys are read in static segments, joined by an online softmax, so that the scores
of a long context never stand in memory together.

Nothing in a padded slot, a padded row or a block that no table names can reach a result: keys and
values outside the live range are zeroed after the gather, since 0 x NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface

FUNCTIONAL_ATTENTION_NAME = "neuron_llm_functional"

# Below every score, and still a number: the difference of two of them is 0, not NaN.
_LOWEST_SCORE = -3.0e38


@dataclass(frozen=True)
class KeySegment:
    """A static range of the keys that block tables lead to.

    Attributes:
        first_block: where it begins in every row of the block tables.
        num_blocks: how many of a row's blocks it holds.
        positions: `[num_keys]` int32, of its keys.
        is_live: bool `[num_seqs, 1, num_keys, 1]`, which of them were ever written.
    """

    first_block: int
    num_blocks: int
    positions: torch.Tensor
    is_live: torch.Tensor


class FunctionalContext:
    """What one graph call tells every attention layer; layers replace their caches in it.

    Args:
        kv_caches: K and V of layer 0, of layer 1 and so on, each
            `[num_blocks, block_size, num_kv_heads, head_dim]`.
        positions: `[num_tokens]` int32.
        slot_mapping: `[num_tokens]` int32, -1 for padding.
        block_tables: `[num_seqs, max_blocks_per_seq]` int32.
        context_lens: `[num_seqs]` int32, this step's tokens included; 0 for a padded row.
        segment_blocks: most blocks of a row that are read at a time, or None for all.
    """

    def __init__(
        self,
        kv_caches: tuple[torch.Tensor, ...],
        *,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        segment_blocks: int | None,
    ) -> None:
        self.kv_caches = list(kv_caches)
        self.num_seqs, max_blocks = block_tables.shape
        self._block_tables = block_tables
        self._query_positions = positions.reshape(self.num_seqs, 1, -1, 1)
        zero = constant_like(slot_mapping, 0)
        is_real = slot_mapping >= zero
        self._is_real_token = is_real[:, None, None]
        self._slots = torch.where(is_real, slot_mapping, zero)
        self.segments = tuple(
            self._segment(
                first, min(segment_blocks or max_blocks, max_blocks - first), context_lens
            )
            for first in range(0, max_blocks, segment_blocks or max_blocks)
        )
        self._visible: dict[tuple[int, int | None], torch.Tensor] = {}

    def _segment(self, first: int, num_blocks: int, context_lens: torch.Tensor) -> KeySegment:
        block_size = self.kv_caches[0].shape[1]
        positions = torch.arange(
            first * block_size,
            (first + num_blocks) * block_size,
            dtype=context_lens.dtype,
            device=context_lens.device,
        )
        is_live = positions[None, :] < context_lens[:, None]
        return KeySegment(first, num_blocks, positions, is_live[:, None, :, None])

    def write(self, index: int, rows: torch.Tensor) -> torch.Tensor:
        """Replace a cache by one in which each token's row stands in its slot.

        A padded token rewrites row 0 of the null block with what stands there: -1 never reaches
        the scatter, where some would wrap it and others drop it.

        Args:
            index: of the cache in `kv_caches`.
            rows: `[num_tokens, num_kv_heads, head_dim]`.

        Returns:
            the new cache, which stands in `kv_caches` now.
        """
        cache = self.kv_caches[index]
        slots = cache.reshape(-1, *cache.shape[2:])
        rows = torch.where(self._is_real_token, rows, slots[:1])
        self.kv_caches[index] = slots.index_put((self._slots,), rows).reshape(cache.shape)
        return self.kv_caches[index]

    def read(self, cache: torch.Tensor, segment: KeySegment) -> torch.Tensor:
        """Gather a segment's blocks and zero what was never written.

        Returns:
            `[num_seqs, num_kv_heads, num_keys, head_dim]`.
        """
        end = segment.first_block + segment.num_blocks
        blocks = self._block_tables[:, segment.first_block : end].reshape(-1)
        rows = cache.index_select(0, blocks).reshape(self.num_seqs, -1, *cache.shape[2:])
        return torch.where(segment.is_live, rows.transpose(1, 2), constant_like(rows, 0))

    def visible_keys(self, segment: KeySegment, sliding_window: int | None) -> torch.Tensor:
        """Return which keys of a segment each query sees, once for all layers that ask the same.

        Returns:
            bool `[num_seqs, 1, num_queries, num_keys]`.
        """
        key = (segment.first_block, sliding_window)
        if key not in self._visible:
            visible = segment.positions <= self._query_positions
            if sliding_window is not None:
                window = constant_like(self._query_positions, sliding_window)
                in_window = segment.positions > self._query_positions - window
                # `&` of booleans would become one of bytes.
                visible = torch.logical_and(visible, in_window)
            self._visible[key] = visible
        return self._visible[key]


@dataclass
class _OnlineSoftmax:
    """Attention over keys that come a segment at a time; all float32, `[..., num_queries, *]`.

    Attributes:
        largest: the largest score so far.
        total: sum of the exponentials of the scores so far, less `largest`.
        output: the same sum, of the values weighted by the exponentials.
    """

    largest: torch.Tensor
    total: torch.Tensor
    output: torch.Tensor

    @classmethod
    def before_any(cls, query: torch.Tensor) -> _OnlineSoftmax:
        shape = (*query.shape[:-1], 1)
        zeros = torch.zeros(shape, dtype=torch.float32, device=query.device)
        output = torch.zeros(query.shape, dtype=torch.float32, device=query.device)
        return cls(torch.full_like(zeros, _LOWEST_SCORE), zeros, output)

    def add(self, scores: torch.Tensor, visible: torch.Tensor, value: torch.Tensor) -> None:
        scores = torch.where(visible, scores, constant_like(scores, _LOWEST_SCORE))
        self._raise_to(scores.amax(dim=-1, keepdim=True))
        # Where a query sees nothing yet, its hidden scores are the largest ones and count as 0.
        weights = torch.exp(scores - self.largest)
        weights = torch.where(visible, weights, constant_like(weights, 0))
        self.total = self.total + weights.sum(dim=-1, keepdim=True)
        self.output = self.output + torch.matmul(weights.to(value.dtype), value).float()

    def add_sinks(self, scores: torch.Tensor) -> None:
        self._raise_to(scores)
        self.total = self.total + torch.exp(scores - self.largest)

    def _raise_to(self, scores: torch.Tensor) -> None:
        largest = torch.maximum(self.largest, scores)
        shrink = torch.exp(self.largest - largest)
        self.largest, self.total, self.output = largest, self.total * shrink, self.output * shrink


def constant_like(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """Return a scalar of a tensor's dtype, on its device."""
    return torch.full((), value, dtype=tensor.dtype, device=tensor.device)


def functional_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    *,
    attention_context: FunctionalContext,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_unused: Any,
) -> tuple[torch.Tensor, None]:
    """Replace the layer's caches by ones that hold this step, and attend over the live context.

    Arguments and result are those of `neuron_llm.backends.graph.attention.paged_attention`.
    """
    context = attention_context
    layer_idx = module.layer_idx
    assert isinstance(layer_idx, int)
    key_cache = context.write(2 * layer_idx, key[0].transpose(0, 1))
    value_cache = context.write(2 * layer_idx + 1, value[0].transpose(0, 1))

    num_heads, num_tokens, head_dim = query.shape[1:]
    num_seqs, num_kv_heads = context.num_seqs, key.shape[1]
    num_queries, group = num_tokens // num_seqs, num_heads // num_kv_heads
    by_token = query[0].transpose(0, 1).reshape(num_seqs, num_queries, num_heads, head_dim)
    # Heads that share keys become more queries of one head: keys are read once for all of them.
    grouped = by_token.transpose(1, 2).reshape(num_seqs, num_kv_heads, group * num_queries, -1)
    softmax = _OnlineSoftmax.before_any(grouped)
    for segment, visible in _visible_by_group(context, sliding_window, group):
        keys = context.read(key_cache, segment)
        scores = torch.matmul(grouped, keys.transpose(-1, -2)).float() * scaling
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        softmax.add(scores, visible, context.read(value_cache, segment))
    if s_aux is not None:
        sinks = s_aux.float().reshape(1, num_kv_heads, group, 1)
        columns = sinks.expand(num_seqs, -1, -1, num_queries)
        softmax.add_sinks(columns.reshape(num_seqs, num_kv_heads, -1, 1))
    output = (softmax.output / softmax.total).to(query.dtype)
    output = output.reshape(num_seqs, num_heads, num_queries, head_dim)
    return output.transpose(1, 2).reshape(1, num_tokens, num_heads, head_dim), None


def _visible_by_group(
    context: FunctionalContext, sliding_window: int | None, group: int
) -> Iterator[tuple[KeySegment, torch.Tensor]]:
    """Yield each segment with its visible keys, `[num_seqs, 1, group * num_queries, num_keys]`."""
    for segment in context.segments:
        visible = context.visible_keys(segment, sliding_window)
        num_seqs, _, num_queries, num_keys = visible.shape
        visible = visible.expand(num_seqs, group, num_queries, num_keys)
        yield segment, visible.reshape(num_seqs, 1, group * num_queries, num_keys)


AttentionInterface.register(FUNCTIONAL_ATTENTION_NAME, functional_attention)
