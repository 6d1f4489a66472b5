"""Paged attention in plain aten: the reference form, and the form that lowers everywhere.

Hugging Face models call it through transformers' attention interface under the name
`ATTENTION_NAME`; what the graph knows beyond the model's own arguments travels in an
`AttentionContext`. The mask comes from positions and context lengths alone, never from what stands
in a block table, so nothing in a padded slot, a padded row or the null block can reach a result.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

ATTENTION_NAME = "neuron_llm_paged"


class AttentionContext:
    """What one graph call tells every attention layer; what layers share is computed once.

    Args:
        key_caches: per layer `[num_blocks, block_size, num_kv_heads, head_dim]`, written in place.
        value_caches: the same for the values.
        positions: `[num_tokens]` int32.
        slot_mapping: `[num_tokens]` int32, -1 for padding.
        block_tables: `[num_seqs, max_blocks_per_seq]` int32.
        context_lens: `[num_seqs]` int32, this step's tokens included; 0 for a padded row.
    """

    def __init__(
        self,
        key_caches: list[torch.Tensor],
        value_caches: list[torch.Tensor],
        *,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
    ) -> None:
        self.key_caches = key_caches
        self.value_caches = value_caches
        self.positions = positions
        self.slot_mapping = slot_mapping
        self.block_tables = block_tables
        self.context_lens = context_lens
        self.num_seqs = block_tables.shape[0]
        self._visible_by_window: dict[int | None, torch.Tensor] = {}

    @cached_property
    def _is_real_token(self) -> torch.Tensor:
        return (self.slot_mapping >= self._zero)[:, None, None]

    @cached_property
    def _slots(self) -> torch.Tensor:
        return torch.where(self.slot_mapping >= self._zero, self.slot_mapping, self._zero)

    @cached_property
    def _zero(self) -> torch.Tensor:
        return torch.zeros((), dtype=torch.int32)

    @cached_property
    def _key_positions(self) -> torch.Tensor:
        block_size = self.key_caches[0].shape[1]
        return torch.arange(self.block_tables.shape[1] * block_size, dtype=torch.int32)

    @cached_property
    def _is_live_key(self) -> torch.Tensor:
        is_live = self._key_positions[None, :] < self.context_lens[:, None]
        return is_live[:, :, None, None]

    def visible_keys(self, sliding_window: int | None) -> torch.Tensor:
        """Return which keys each query may see: not the future, and not what left the window.

        Liveness is no part of it: dead keys and values are zeroed, and a real query's position is
        the last live one at most, so only padded rows see dead keys, and those yield zeros.

        Returns:
            bool `[num_seqs, 1, num_queries, max_context_tokens]`.
        """
        if sliding_window not in self._visible_by_window:
            query_positions = self.positions.reshape(self.num_seqs, 1, -1, 1)
            visible = self._key_positions <= query_positions
            if sliding_window is not None:
                first_hidden = query_positions - sliding_window
                visible = visible & (self._key_positions > first_hidden)
            self._visible_by_window[sliding_window] = visible
        return self._visible_by_window[sliding_window]

    def write(self, cache: torch.Tensor, rows: torch.Tensor) -> None:
        """Write each token's row into its slot.

        A padded token rewrites row 0 of the null block with what stands there: slot -1 never
        reaches the scatter, where aten would wrap it to the last slot.

        Args:
            cache: `[num_blocks, block_size, num_kv_heads, head_dim]`, changed in place.
            rows: `[num_tokens, num_kv_heads, head_dim]`.
        """
        slots = cache.view(-1, *cache.shape[2:])
        slots.index_put_((self._slots,), torch.where(self._is_real_token, rows, slots[:1]))

    def read(self, cache: torch.Tensor) -> torch.Tensor:
        """Gather whole blocks and zero everything outside the live range, since 0 x NaN is NaN.

        Args:
            cache: `[num_blocks, block_size, num_kv_heads, head_dim]`.

        Returns:
            `[num_seqs, num_kv_heads, max_context_tokens, head_dim]`.
        """
        blocks = cache.index_select(0, self.block_tables.reshape(-1))
        rows = blocks.reshape(self.num_seqs, -1, *cache.shape[2:])
        rows = torch.where(self._is_live_key, rows, torch.zeros((), dtype=rows.dtype))
        return rows.transpose(1, 2)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    visible: torch.Tensor,
    *,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Masked grouped-query attention, with soft-capped scores or sinks where the model has them.

    Args:
        query: `[num_seqs, num_heads, num_queries, head_dim]`.
        key: `[num_seqs, num_kv_heads, num_keys, head_dim]`.
        value: the same shape as `key`.
        visible: bool `[num_seqs, 1, num_queries, num_keys]`; every query sees at least one key.
        scaling: factor on the scores.
        softcap: `softcap * tanh(score / softcap)`, or None.
        sinks: `[num_heads]` extra logits that take probability and give nothing, or None.

    Returns:
        `[num_seqs, num_heads, num_queries, head_dim]`.
    """
    num_seqs, num_heads, num_queries, head_dim = query.shape
    num_kv_heads, num_keys = key.shape[1:3]
    # Heads that share keys become more queries of one head, so that keys are read once for all of
    # them.
    group = num_heads // num_kv_heads
    query = query.reshape(num_seqs, num_kv_heads, group * num_queries, head_dim)
    if num_queries > 1:
        visible = visible.expand(num_seqs, group, num_queries, num_keys)
        visible = visible.reshape(num_seqs, 1, group * num_queries, num_keys)
    if softcap is None and sinks is None:
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=scaling)
        return output.reshape(num_seqs, num_heads, num_queries, head_dim)

    scores = torch.matmul(query, key.transpose(-1, -2)).float() * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = torch.where(visible, scores, torch.full((), float("-inf"), dtype=scores.dtype))
    if sinks is not None:
        by_head = sinks.float().reshape(1, num_kv_heads, group, 1)
        columns = by_head.expand(num_seqs, -1, -1, num_queries)
        scores = torch.cat([scores, columns.reshape(num_seqs, num_kv_heads, -1, 1)], dim=-1)
    probabilities = torch.softmax(scores, dim=-1)[..., :num_keys].to(value.dtype)
    return torch.matmul(probabilities, value).reshape(num_seqs, num_heads, num_queries, head_dim)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    *,
    attention_context: AttentionContext,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_unused: Any,
) -> tuple[torch.Tensor, None]:
    """Write this step's keys and values into the paged cache, then attend over the live context.

    The batch is flat. In a prefill graph all tokens belong to the one row of `block_tables`; in a
    decode graph token i is row i.

    Args:
        module: the attention layer; its `layer_idx` picks the cache.
        query: `[1, num_heads, num_tokens, head_dim]`.
        key: `[1, num_kv_heads, num_tokens, head_dim]`.
        value: the same shape as `key`.
        attention_mask: always None: the model builds no mask for an attention it does not know.
        scaling: factor on the scores.
        attention_context: see `AttentionContext`.
        sliding_window: number of keys a query of this layer sees, itself included, or None for all.
        softcap: see `attend`.
        s_aux: attention sinks, see `attend`.

    Returns:
        `[1, num_tokens, num_heads, head_dim]`, and no weights.
    """
    context = attention_context
    layer_idx = module.layer_idx
    assert isinstance(layer_idx, int)
    key_cache = context.key_caches[layer_idx]
    value_cache = context.value_caches[layer_idx]
    context.write(key_cache, key[0].transpose(0, 1))
    context.write(value_cache, value[0].transpose(0, 1))

    num_heads, num_tokens, head_dim = query.shape[1:]
    num_queries = num_tokens // context.num_seqs
    by_token = query[0].transpose(0, 1).reshape(context.num_seqs, num_queries, num_heads, head_dim)
    output = attend(
        by_token.transpose(1, 2),
        context.read(key_cache),
        context.read(value_cache),
        context.visible_keys(sliding_window),
        scaling=scaling,
        softcap=softcap,
        sinks=s_aux,
    )
    return output.transpose(1, 2).reshape(1, num_tokens, num_heads, head_dim), None


AttentionInterface.register(ATTENTION_NAME, paged_attention)
