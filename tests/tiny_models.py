"""Small random models with a byte-level tokenizer, and what eager Hugging Face says about them.

Weights are drawn wide, so that greedy outputs differ from prompt to prompt and from step to step:
a model that repeats one token would agree with any bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizer_factory import CHAT_TEMPLATE, byte_level_backend, save_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

VOCAB_SIZE = 272
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 262,
    "eos_token_id": 263,
}
LLAMA: dict[str, Any] = {
    **_SIZES,
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
# Three heads over one, and a head_dim that is no power of two and not hidden_size / heads.
QWEN3: dict[str, Any] = {
    **_SIZES,
    "model_type": "qwen3",
    "hidden_size": 56,
    "intermediate_size": 80,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 24,
    "tie_word_embeddings": False,
}


def save_model(directory: Path, settings: dict[str, Any], *, seed: int = 0) -> Path:
    """Write a random model and its tokenizer as a Hugging Face directory."""
    options = dict(settings)
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.3 if parameter.dim() > 1 else 0.5
            parameter.copy_(torch.randn_like(parameter) * spread)
    model.save_pretrained(directory)
    return save_tokenizer(directory, byte_level_backend(), chat_template=CHAT_TEMPLATE)


def load_reference(directory: Path) -> Any:
    """Return the model as eager Hugging Face runs it: unpadded, float32."""
    return AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager", dtype=torch.float32
    ).eval()


def reference_tokens(model: Any, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """Return the greedy continuation of one prompt, by `generate`, end of sequence ignored."""
    output = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens: list[int] = output[0, len(prompt) :].tolist()
    return tokens


def random_prompt(length: int, *, seed: int) -> list[int]:
    """Return ids of byte tokens, different for every seed."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, 256, (length,), generator=generator).tolist()
    return ids
