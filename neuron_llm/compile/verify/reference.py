"""What eager Hugging Face says: the logits and the KV of token sequences, unpadded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import DynamicCache

from neuron_llm.backends.graph.rotary import fix_rotary_frequencies
from neuron_llm.compile.model.transformers_model import load_model


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
        model, _ = load_model(checkpoint, dtype)
        fix_rotary_frequencies(model, max_model_len)
        self._model = model.eval()
        compute_in_float32(self._model)
        self.vocab_size: int = model.config.vocab_size

    @torch.no_grad()
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


def compute_in_float32(model: torch.nn.Module) -> None:
    """Give every module of a model its own weights in float32 while it runs, and only then.

    So the model takes the memory of its checkpoint and of its largest layer in float32, where
    `model.float()` would take twice that of a checkpoint in bfloat16.
    """
    for module in model.modules():
        _WidenedModule(module)


class _WidenedModule:
    """The weights that a module itself holds, as they are stored and as it computes with them."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._stored = [(p, p.data) for p in module.parameters(recurse=False)]
        if self._stored:
            module.register_forward_pre_hook(self._widen)
            module.register_forward_hook(self._narrow)

    def _widen(self, *_: object) -> None:
        for parameter, data in self._stored:
            parameter.data = data.float()

    def _narrow(self, *_: object) -> None:
        for parameter, data in self._stored:
            parameter.data = data
