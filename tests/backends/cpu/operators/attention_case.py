"""Sequences in a paged cache, calls of `paged_attention` on them, and the exact results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

BLOCK_SIZE = 16
# The greatest relative change by rounding to nearest.
_ROUNDING = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11}
# What a weight may be off: by the rounding of its score; in bfloat16 weights are rounded too.
_WEIGHT_ERROR = {torch.float32: 2**-17, torch.bfloat16: 2**-8, torch.float16: 2**-17}


@dataclass(frozen=True)
class Heads:
    """How many heads of what size."""

    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 64

    def __str__(self) -> str:
        return f"{self.num_heads}x{self.num_kv_heads}x{self.head_dim}"


@dataclass(frozen=True)
class Variant:
    """What a model's attention does besides softmax."""

    sliding_window: int = 0
    softcap: float = 0.0
    has_sinks: bool = False

    def __str__(self) -> str:
        return f"window{self.sliding_window}-cap{self.softcap:g}-sinks{int(self.has_sinks)}"

    def sinks(self, heads: Heads) -> torch.Tensor | None:
        return torch.linspace(-1, 2, heads.num_heads) if self.has_sinks else None


# SmolLM2-135M's.
HEADS = Heads()
PLAIN = Variant()
VARIANTS = (
    PLAIN,
    Variant(sliding_window=20),
    Variant(softcap=2.0),
    Variant(has_sinks=True),
    Variant(sliding_window=150, softcap=5.0, has_sinks=True),
)


@dataclass
class Sequence:
    """One sequence: `[length, heads, head_dim]`, and where it lies in the cache."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    block_ids: list[int]

    def slots(self, positions: list[int]) -> list[int]:
        return [self.block_ids[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in positions]


@dataclass
class Arguments:
    """The tensors of one call, without the caches."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    block_tables: torch.Tensor
    context_lens: torch.Tensor


class PagedCase:
    """Sequences of given lengths in a cache in which all that was never written is NaN.

    Args:
        lengths: one sequence each; the same arguments give the same numbers.
        heads: of all of them.
        dtype: of everything but sinks.
    """

    def __init__(
        self, lengths: list[int], heads: Heads = HEADS, dtype: torch.dtype = torch.float32
    ) -> None:
        self.heads, self.dtype = heads, dtype
        self._generator = torch.Generator().manual_seed(1)
        self.width = max(-(-length // BLOCK_SIZE) for length in lengths)
        self.num_blocks = sum(-(-length // BLOCK_SIZE) for length in lengths) + 1
        shape = (self.num_blocks, BLOCK_SIZE, heads.num_kv_heads, heads.head_dim)
        self.key_cache = torch.full(shape, math.nan, dtype=dtype)
        self.value_cache = torch.full(shape, math.nan, dtype=dtype)
        free = (torch.randperm(self.num_blocks - 1, generator=self._generator) + 1).tolist()
        self.sequences = []
        for length in lengths:
            block_ids = [free.pop() for _ in range(-(-length // BLOCK_SIZE))]
            self.sequences.append(
                Sequence(
                    self._random(length, heads.num_heads),
                    self._random(length, heads.num_kv_heads),
                    self._random(length, heads.num_kv_heads),
                    block_ids,
                )
            )

    def _random(self, length: int, num_heads: int) -> torch.Tensor:
        shape = (length, num_heads, self.heads.head_dim)
        return torch.randn(shape, generator=self._generator).to(self.dtype)

    def fill(self, index: int, end: int) -> None:
        """Write the keys and values of a sequence's first `end` tokens."""
        sequence = self.sequences[index]
        slots = sequence.slots(list(range(end)))
        self.key_cache.flatten(0, 1)[slots] = sequence.key[:end]
        self.value_cache.flatten(0, 1)[slots] = sequence.value[:end]

    def block_tables(self, indices: list[int], filler: int = 0) -> torch.Tensor:
        """Return a row per sequence, filled up with `filler`."""
        tables = torch.full((len(indices), self.width), filler, dtype=torch.int32)
        for row, index in enumerate(indices):
            blocks = self.sequences[index].block_ids
            tables[row, : len(blocks)] = torch.tensor(blocks)
        return tables

    def prefill(self, index: int, first: int, end: int, num_padded: int = 0) -> Arguments:
        """Return a chunk of tokens, padded with NaN as a bucket pads it."""
        sequence = self.sequences[index]
        positions = list(range(first, end))
        slots = sequence.slots(positions) + [-1] * num_padded
        return Arguments(
            query=_padded(sequence.query[first:end], num_padded),
            key=_padded(sequence.key[first:end], num_padded),
            value=_padded(sequence.value[first:end], num_padded),
            positions=_int32(positions + [end - 1] * num_padded),
            slot_mapping=_int32(slots),
            block_tables=self.block_tables([index]),
            context_lens=_int32([end]),
        )

    def decode(self, rows: list[tuple[int, int]], num_padded: int = 0) -> Arguments:
        """Return one token for each pair of a sequence's index and a position."""
        sequences = [(self.sequences[i], p) for i, p in rows]
        slots = [slot for sequence, p in sequences for slot in sequence.slots([p])]
        tables = self.block_tables([i for i, _ in rows])
        unused = torch.zeros((num_padded, self.width), dtype=torch.int32)
        return Arguments(
            query=_padded(torch.stack([s.query[p] for s, p in sequences]), num_padded),
            key=_padded(torch.stack([s.key[p] for s, p in sequences]), num_padded),
            value=_padded(torch.stack([s.value[p] for s, p in sequences]), num_padded),
            positions=_int32([p for _, p in rows] + [0] * num_padded),
            slot_mapping=_int32(slots + [-1] * num_padded),
            block_tables=torch.cat([tables, unused]),
            context_lens=_int32([p + 1 for _, p in rows] + [0] * num_padded),
        )

    def run(self, arguments: Arguments, variant: Variant = PLAIN) -> torch.Tensor:
        """Call the operator."""
        output: torch.Tensor = torch.ops.neuron_llm.paged_attention(
            *self.operands(arguments, variant)
        )
        return output

    def operands(self, arguments: Arguments, variant: Variant = PLAIN) -> tuple[Any, ...]:
        """Return what the operator takes, in its order."""
        return (
            *(arguments.query, arguments.key, arguments.value, self.key_cache, self.value_cache),
            *(arguments.positions, arguments.slot_mapping, arguments.block_tables),
            *(arguments.context_lens, self.heads.head_dim**-0.5, variant.softcap),
            *(variant.sliding_window, variant.sinks(self.heads)),
        )

    def check(
        self, output: torch.Tensor, index: int, positions: list[int], variant: Variant = PLAIN
    ) -> None:
        """Assert that `output` is what the queries at some positions of a sequence give."""
        exact, magnitude = self._exact(index, positions, variant)
        tolerance = _ROUNDING[self.dtype] * exact.abs() + _WEIGHT_ERROR[self.dtype] * magnitude
        assert output.dtype == self.dtype and output.shape == exact.shape
        assert ((output.double() - exact).abs() <= tolerance + 2**-25).all()

    def _exact(
        self, index: int, positions: list[int], variant: Variant
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the result in float64, and the same with values without their signs."""
        sequence = self.sequences[index]
        length, group = max(positions) + 1, self.heads.num_heads // self.heads.num_kv_heads
        query = sequence.query[positions].double()
        key, value = (
            rows[:length].double().repeat_interleave(group, 1)
            for rows in (sequence.key, sequence.value)
        )
        scores = torch.einsum("qhd,khd->hqk", query, key) * self.heads.head_dim**-0.5
        if variant.softcap:
            scores = variant.softcap * torch.tanh(scores / variant.softcap)
        distance = torch.tensor(positions)[:, None] - torch.arange(length)[None]
        is_hidden = distance < 0
        if variant.sliding_window:
            is_hidden |= distance >= variant.sliding_window
        scores = scores.masked_fill(is_hidden, -math.inf)
        if variant.has_sinks:
            sinks = variant.sinks(self.heads)
            assert sinks is not None
            columns = sinks.double()[:, None, None].expand(-1, len(positions), 1)
            scores = torch.cat([scores, columns], -1)
        weights = torch.softmax(scores, -1)[..., :length]
        results = [torch.einsum("hqk,khd->qhd", weights, v) for v in (value, value.abs())]
        return results[0], results[1]


def _padded(rows: torch.Tensor, num_padded: int) -> torch.Tensor:
    padding = torch.full((num_padded, *rows.shape[1:]), math.nan, dtype=rows.dtype)
    return torch.cat([rows, padding])


def _int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)
