"""The static graph of a bucket as a pure function, and with its KV state inside.

`FunctionalGraph` is `(inputs, *kv) -> (logits or next_token_ids, *kv)`: nothing is written in
place, so the graph is the same whoever owns the state. `StatefulGraph` is that function over caches
that it holds as parameters, the form in which `torch_neuronx.trace` aliases states to outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from neuron_llm.backends.neuron.graph.functional_attention import FunctionalContext


class FunctionalGraph(torch.nn.Module):
    """One step of the model over the paged KV cache.

    Args:
        model: a Hugging Face causal language model with the functional attention.
        segment_blocks: most blocks of a row that attention reads at a time, or None for all.
        samples_greedily: whether the graph gives the most likely token instead of the logits.
    """

    def __init__(
        self, model: torch.nn.Module, *, segment_blocks: int | None, samples_greedily: bool
    ) -> None:
        super().__init__()
        self.model = model
        self._segment_blocks = segment_blocks
        self._samples_greedily = samples_greedily

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        logits_indices: torch.Tensor,
        *kv_caches: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Return the logits of the rows that `logits_indices` names, and the new caches.

        Args:
            input_ids: `[num_tokens]` int32.
            positions: `[num_tokens]` int32.
            slot_mapping: `[num_tokens]` int32.
            block_tables: `[num_seqs, max_blocks_per_seq]` int32.
            context_lens: `[num_seqs]` int32.
            logits_indices: `[num_seqs]` int32.
            kv_caches: K and V of every layer in turn, each
                `[num_blocks, block_size, num_kv_heads, head_dim]`.

        Returns:
            `[num_seqs, vocab_size]` in the model's dtype, or `[num_seqs]` int32 where the graph
            samples; then the caches in their order.
        """
        context = FunctionalContext(
            kv_caches,
            positions=positions,
            slot_mapping=slot_mapping,
            block_tables=block_tables,
            context_lens=context_lens,
            segment_blocks=self._segment_blocks,
        )
        model: Any = self.model
        # The rows are chosen before the head by `index_select`, which takes int32 indices; what
        # the model itself would do with them is an index that wraps negative numbers.
        head = model.get_output_embeddings()
        hook = head.register_forward_pre_hook(
            lambda _, args: (args[0].index_select(1, logits_indices),)
        )
        try:
            output = model(
                input_ids=input_ids[None, :],
                position_ids=positions[None, :],
                use_cache=False,
                attention_context=context,
            )
        finally:
            hook.remove()
        result: torch.Tensor = output.logits[0]
        if self._samples_greedily:
            result = result.argmax(dim=-1).to(torch.int32)
        return (result, *context.kv_caches)


class StatefulGraph(torch.nn.Module):
    """A functional graph over caches of its own, which its extra outputs replace.

    Args:
        graph: the function.
        kv_caches: in the graph's order.
    """

    def __init__(self, graph: torch.nn.Module, kv_caches: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.function = graph
        self.kv_caches = torch.nn.ParameterList(
            [torch.nn.Parameter(cache, requires_grad=False) for cache in kv_caches]
        )

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_tables: torch.Tensor,
        context_lens: torch.Tensor,
        logits_indices: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Return what the function returns for these inputs and the caches held here."""
        result: tuple[torch.Tensor, ...] = self.function(
            input_ids,
            positions,
            slot_mapping,
            block_tables,
            context_lens,
            logits_indices,
            *self.kv_caches,
        )
        return result

    def aliases(self) -> dict[torch.Tensor, int]:
        """Return which output takes the place of each cache: the first one is no cache."""
        return {cache: 1 + index for index, cache in enumerate(self.kv_caches)}
