"""A session whose graphs are not compiled: the traced module itself, run eagerly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from neuron_llm.backends.graph.attention import ATTENTION_NAME
from neuron_llm.backends.graph.inputs import GraphInputs
from neuron_llm.backends.graph.module import GraphModule
from neuron_llm.scheduler.buckets import Bucket


class EagerSession:
    """Runs every bucket through one `GraphModule`."""

    def __init__(self, checkpoint: Path, *, num_blocks: int, block_size: int) -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation=ATTENTION_NAME
        )
        self.module = GraphModule(model.eval())
        config = model.config
        head_dim = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        shape = (num_blocks, block_size, config.num_key_value_heads, head_dim)
        layers = range(config.num_hidden_layers)
        self.key_caches = [torch.zeros(shape) for _ in layers]
        self.value_caches = [torch.zeros(shape) for _ in layers]

    @torch.inference_mode()
    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        logits: torch.Tensor = self.module(*inputs.as_tuple(), self.key_caches, self.value_caches)
        return logits
