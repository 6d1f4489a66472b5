"""The function of a bucket over caches that are buffers, the form that NxD Core's tracing takes.

Tracing sees which buffers a call replaces, and aliases them to what replaces them. The caches of
all buckets have the same names: on the device they are one state.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from neuron_llm.backends.neuron.graph.binding_table import cache_names


class BufferedGraph(torch.nn.Module):
    """A functional graph over caches of its own, which every call replaces out of place.

    Args:
        graph: the function.
        kv_caches: in the graph's order.
    """

    def __init__(self, graph: torch.nn.Module, kv_caches: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.function = graph
        self.cache_names = cache_names(len(kv_caches) // 2)
        for name, cache in zip(self.cache_names, kv_caches, strict=True):
            self.register_buffer(name, cache)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        logits_indices: torch.Tensor,
    ) -> torch.Tensor:
        """Return the function's first result, and keep the caches that it returns.

        Args:
            input_ids: as of `FunctionalGraph`, like the others.
            positions: likewise.
            slot_mapping: likewise.
            block_tables: likewise.
            context_lens: likewise.
            logits_indices: likewise.
        """
        result: torch.Tensor
        result, *kv_caches = self.function(
            input_ids,
            positions,
            slot_mapping,
            block_tables,
            context_lens,
            logits_indices,
            *(self.get_buffer(name) for name in self.cache_names),
        )
        for name, cache in zip(self.cache_names, kv_caches, strict=True):
            setattr(self, name, cache)
        return result
