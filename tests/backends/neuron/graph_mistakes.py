"""Mistakes in the function that a graph computes, by patching the context of its attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from neuron_llm.backends.neuron.graph.functional_attention import FunctionalContext, constant_like


def index_with_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    write = FunctionalContext.write

    def slipped(self: FunctionalContext, index: int, rows: torch.Tensor) -> torch.Tensor:
        self._slots = self._slots.long()
        return write(self, index, rows)

    monkeypatch.setattr(FunctionalContext, "write", slipped)


def write_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: FunctionalContext, index: int, rows: torch.Tensor) -> torch.Tensor:
        cache = self.kv_caches[index]
        slots = cache.view(-1, *cache.shape[2:])
        slots.index_put_((self._slots,), rows)
        return cache

    monkeypatch.setattr(FunctionalContext, "write", write)


def compute_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: FunctionalContext, cache: torch.Tensor, segment: Any) -> torch.Tensor:
        blocks = cache.index_select(0, self._block_tables.reshape(-1))
        rows = blocks.reshape(self.num_seqs, -1, *cache.shape[2:]).transpose(1, 2)
        zero = constant_like(rows.double(), 0)
        return torch.where(segment.is_live, rows.double(), zero).float()

    monkeypatch.setattr(FunctionalContext, "read", read)
