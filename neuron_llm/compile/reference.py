"""What eager Hugging Face says: the logits and the KV of token sequences, unpadded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from neuron_llm.backends.rotary import fix_rotary_frequencies


@dataclass(frozen=True)
class ReferenceSequence:
    """A sequence of tokens and what the model makes of it.

    Attributes:
        token_ids: its tokens.
        logits: by position, `[vocab_size]` float32; only of the positions that were asked for.
        keys: per layer `[num_tokens, num_kv_heads, head_dim]`.
        values: the same.
    """

    token_ids: Sequence[int]
    logits: dict[int, torch.Tensor]
    keys: list[torch.Tensor]
    values: list[torch.Tensor]


class Reference:
    """The model of a checkpoint, run eagerly in one piece per sequence.

    Weights have the precision of the graphs, all arithmetic is float32: what a graph differs by is
    its own rounding.

    Args:
        checkpoint: a Hugging Face directory.
        dtype: of the graphs.
        max_model_len: see `fix_rotary_frequencies`.
    """

    def __init__(
        self, checkpoint: Path, dtype: torch.dtype, *, max_model_len: int | None = None
    ) -> None:
        model = AutoModelForCausalLM.from_pretrained(
            checkpoint,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
        fix_rotary_frequencies(model, max_model_len)
        self._model = model.float().eval()
        self.vocab_size: int = model.config.vocab_size

    @torch.inference_mode()
    def run(self, token_ids: Sequence[int], positions: Sequence[int]) -> ReferenceSequence:
        """Return what the model makes of a sequence.

        Args:
            token_ids: the sequence.
            positions: where logits are wanted, ascending.
        """
        cache = DynamicCache()
        output = self._model(
            input_ids=torch.tensor([list(token_ids)]),
            cache=cache,
            use_cache=True,
            logits_to_keep=torch.tensor(list(positions)),
        )
        logits = dict(zip(positions, output.logits[0].float(), strict=True))
        keys = [layer.keys[0].transpose(0, 1).contiguous() for layer in cache.layers]
        values = [layer.values[0].transpose(0, 1).contiguous() for layer in cache.layers]
        return ReferenceSequence(token_ids, logits, keys, values)
