"""Attention of SmolLM2-135M for `operators.py`: 9 query heads, 3 KV heads, blocks of 16 tokens.

Layers are taken in turn, so that a layer's cache has left the nearest caches by the time that it is
read again, as in a model. Our operator is called through its C interface, as compiled graphs call
it, and reads blocks that lie anywhere in the cache. Torch's `scaled_dot_product_attention` reads
the same keys and values in one piece, as it knows no blocks; gathering them is not timed. Its heads
are grouped by `enable_gqa`, or repeated beforehand, whichever is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle

import torch
import torch.nn.functional as F
from operator_case import Case

from neuron_llm.backends.cpu.operators.interface import PagedAttentionStruct, tensor_struct
from neuron_llm.backends.cpu.operators.registration import LIBRARY_IN_USE
from neuron_llm.scheduler.block_pool import num_blocks_for

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 9, 3, 64, 16
SCALING = HEAD_DIM**-0.5
DTYPES = (torch.bfloat16, torch.float32)
DECODE_CASES = [(1, 256), (1, 1024), (1, 4096), (4, 1024), (8, 1024), (8, 4096)]
PREFILL_CASES = [(128, 0), (512, 0), (128, 256), (128, 2048)]


@dataclass(frozen=True)
class Layer:
    """A layer's paged cache, and the same keys and values in one piece per sequence."""

    key_cache: torch.Tensor
    value_cache: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def attention_layers(
    num_layers: int, block_tables: torch.Tensor, context: int, dtype: torch.dtype
) -> list[Layer]:
    """Fill caches with random numbers; `keys` are `[num_seqs, num_kv_heads, context, head_dim]`."""

    def in_one_piece(cache: torch.Tensor) -> torch.Tensor:
        rows = cache[block_tables.long()].flatten(1, 2)[:, :context]
        return rows.transpose(1, 2).contiguous()

    layers = []
    for _ in range(num_layers):
        shape = (block_tables.numel() + 1, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)
        caches = [torch.randn(shape).to(dtype) for _ in range(2)]
        layers.append(Layer(*caches, *map(in_one_piece, caches)))
    return layers


def random_block_tables(num_seqs: int, context: int) -> torch.Tensor:
    """Return tables whose blocks lie anywhere in the cache."""
    width = num_blocks_for(context, BLOCK_SIZE)
    blocks = torch.randperm(num_seqs * width) + 1
    return blocks.reshape(num_seqs, width).to(torch.int32)


def paged_call(
    layers: list[Layer],
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    positions: torch.Tensor,
    block_tables: torch.Tensor,
    context: int,
) -> Callable[[], torch.Tensor]:
    """Return a call of our operator on the next layer; tokens are `[num_tokens, heads, dim]`."""
    num_tokens = len(positions)
    sequences = torch.arange(num_tokens) if len(block_tables) == num_tokens else 0
    blocks = block_tables.long()[sequences, positions // BLOCK_SIZE]
    output = torch.empty_like(qkv[0])
    tensors = {
        **dict(zip(("query", "key", "value"), qkv, strict=True)),
        "positions": positions.to(torch.int32),
        "slot_mapping": (blocks * BLOCK_SIZE + positions % BLOCK_SIZE).to(torch.int32),
        "block_tables": block_tables,
        "context_lens": torch.full((len(block_tables),), context, dtype=torch.int32),
        "output": output,
    }
    structs = {name: tensor_struct(tensor) for name, tensor in tensors.items()}
    # The structs point to the tensors, which have to stay.
    calls = cycle(
        (
            PagedAttentionStruct(
                key_cache=tensor_struct(layer.key_cache),
                value_cache=tensor_struct(layer.value_cache),
                scaling=SCALING,
                **structs,
            ),
            layer,
            tensors,
        )
        for layer in layers
    )

    def call() -> torch.Tensor:
        LIBRARY_IN_USE.library.call("paged_attention", next(calls)[0])
        return output

    return call


def torch_calls(
    layers: list[Layer], query: torch.Tensor, num_prior: int
) -> tuple[Callable[[], torch.Tensor], ...]:
    """Return torch's attention on the next layer, twice; `query` is `[num_seqs, heads, n, dim]`."""
    num_queries, context = query.shape[2], layers[0].keys.shape[2]
    group = NUM_HEADS // NUM_KV_HEADS
    mask = None
    if num_prior and num_queries > 1:
        mask = torch.ones(num_queries, context, dtype=torch.bool).tril(num_prior)
    is_causal = num_queries > 1 and mask is None
    repeated = [
        (layer.keys.repeat_interleave(group, 1), layer.values.repeat_interleave(group, 1))
        for layer in layers
    ]
    grouped_layers = cycle((layer.keys, layer.values) for layer in layers)
    repeated_layers = cycle(repeated)

    def call(pairs: Iterator[tuple[torch.Tensor, torch.Tensor]], is_grouped: bool) -> torch.Tensor:
        return F.scaled_dot_product_attention(
            *(query, *next(pairs)),
            attn_mask=mask,
            is_causal=is_causal,
            scale=SCALING,
            enable_gqa=is_grouped,
        )

    return lambda: call(grouped_layers, True), lambda: call(repeated_layers, False)


def decode_case(num_seqs: int, context: int, dtype: torch.dtype, num_layers: int) -> Case:
    """One token for each of `num_seqs` sequences of `context` tokens."""
    block_tables = random_block_tables(num_seqs, context)
    layers = attention_layers(num_layers, block_tables, context, dtype)
    query = torch.randn(num_seqs, NUM_HEADS, HEAD_DIM).to(dtype)
    key, value = (layers[0].keys[:, :, -1].contiguous() for _ in range(2))
    positions = torch.full((num_seqs,), context - 1)
    return Case(
        f"decode {num_seqs} x {context}",
        paged_call(layers, (query, key, value), positions, block_tables, context),
        torch_calls(layers, query[:, :, None], context - 1),
        num_bytes=num_seqs * context * NUM_KV_HEADS * HEAD_DIM * 2 * dtype.itemsize,
        num_flops=num_seqs * context * NUM_HEADS * HEAD_DIM * 4,
    )


def prefill_case(num_tokens: int, num_prior: int, dtype: torch.dtype, num_layers: int) -> Case:
    """A chunk of `num_tokens` tokens of a sequence whose first `num_prior` are in the cache."""
    context = num_prior + num_tokens
    block_tables = random_block_tables(1, context)
    layers = attention_layers(num_layers, block_tables, context, dtype)
    query = torch.randn(num_tokens, NUM_HEADS, HEAD_DIM).to(dtype)
    key, value = (torch.randn(num_tokens, NUM_KV_HEADS, HEAD_DIM).to(dtype) for _ in range(2))
    positions = torch.arange(num_prior, context)
    num_pairs = num_tokens * num_prior + num_tokens * (num_tokens + 1) // 2
    return Case(
        f"prefill {num_tokens} after {num_prior}",
        paged_call(layers, (query, key, value), positions, block_tables, context),
        torch_calls(layers, query.transpose(0, 1)[None].contiguous(), num_prior),
        num_bytes=context * NUM_KV_HEADS * HEAD_DIM * 2 * dtype.itemsize,
        num_flops=num_pairs * NUM_HEADS * HEAD_DIM * 4,
    )


def attention_cases(num_layers: int) -> Iterator[tuple[str, Callable[[], Case]]]:
    """Yield the name and a maker of every attention case."""
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        for num_seqs, context in DECODE_CASES:
            yield (
                f"attention {name} decode",
                lambda s=num_seqs, c=context, d=dtype: decode_case(s, c, d, num_layers),
            )
        for num_tokens, num_prior in PREFILL_CASES:
            yield (
                f"attention {name} prefill",
                lambda t=num_tokens, p=num_prior, d=dtype: prefill_case(t, p, d, num_layers),
            )
