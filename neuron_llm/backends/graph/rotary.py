"""Rotary frequencies that hold for a whole artifact.

Some models choose their frequencies by the length of the sequence that they are computing, and
turn every cached key anew when it passes a limit. A step here computes several sequences, and
shares the keys of their prefixes: the length that counts is `max_model_len`, for all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

_LONGROPE = "longrope"


def fix_rotary_frequencies(model: torch.nn.Module, max_model_len: int | None = None) -> None:
    """Fix the frequencies of a model as a sequence of `max_model_len` has them.

    `longrope` has its short factors up to `original_max_position_embeddings`, and its long ones
    beyond. `dynamic` scaling begins behind `max_position_embeddings`, so that it never does.

    Args:
        model: changed in place: it looks at no lengths any more.
        max_model_len: tokens of the longest request; None for the longest that the model knows.
    """
    for module in model.modules():
        rope_type = getattr(module, "rope_type", None)
        if isinstance(rope_type, str):
            _fix(module, rope_type, None, max_model_len)
            fixed: Any = _without_update(rope_type)
        elif isinstance(rope_type, dict):
            for layer_type, name in rope_type.items():
                _fix(module, name, layer_type, max_model_len)
            fixed = {layer_type: _without_update(name) for layer_type, name in rope_type.items()}
        else:
            continue
        module.rope_type = fixed


def _without_update(rope_type: str) -> str:
    """Return a type under which the frequencies stay what they are."""
    return "default" if rope_type == _LONGROPE or "dynamic" in rope_type else rope_type


def _fix(
    module: torch.nn.Module, rope_type: str, layer_type: str | None, max_model_len: int | None
) -> None:
    if rope_type != _LONGROPE:
        return
    config: Any = module.config
    parameters = (
        config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
    )
    length = config.max_position_embeddings if max_model_len is None else max_model_len
    if length > parameters["original_max_position_embeddings"]:
        frequencies, _ = ROPE_INIT_FUNCTIONS[_LONGROPE](
            config, None, seq_len=length, layer_type=layer_type
        )
        name = "inv_freq" if layer_type is None else f"{layer_type}_inv_freq"
        module.get_buffer(name).copy_(frequencies)
