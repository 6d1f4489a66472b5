"""The static graph of a bucket, as a module that `torch.export` traces.

A Hugging Face causal language model with our attention plugged in. Inputs follow one contract for
every bucket (`backends/graph/inputs.py`); KV caches are updated in place.
"""

from __future__ import annotations

import torch

from neuron_llm.backends.graph.attention import AttentionContext


class GraphModule(torch.nn.Module):
    """One step of the model over the paged KV cache."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        logits_indices: torch.Tensor,
        key_caches: list[torch.Tensor],
        value_caches: list[torch.Tensor],
    ) -> torch.Tensor:
        """Return the logits of the rows that `logits_indices` names.

        Args:
            input_ids: `[num_tokens]` int32.
            positions: `[num_tokens]` int32.
            slot_mapping: `[num_tokens]` int32.
            block_tables: `[num_seqs, max_blocks_per_seq]` int32.
            context_lens: `[num_seqs]` int32.
            logits_indices: `[num_seqs]` int32.
            key_caches: per layer `[num_blocks, block_size, num_kv_heads, head_dim]`.
            value_caches: the same.

        Returns:
            `[num_seqs, vocab_size]` in the model's dtype.
        """
        context = AttentionContext(
            key_caches,
            value_caches,
            positions=positions,
            slot_mapping=slot_mapping,
            block_tables=block_tables,
            context_lens=context_lens,
        )
        output = self.model(
            input_ids=input_ids[None, :],
            position_ids=positions[None, :],
            use_cache=False,
            logits_to_keep=logits_indices,
            attention_context=context,
        )
        logits: torch.Tensor = output.logits[0]
        return logits
