"""What a graph is: the specification that determines it, and the tensors that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from neuron_llm.scheduler.buckets import Bucket


@dataclass(frozen=True)
class GraphSpec:
    """Everything that determines one graph, and nothing else: no path, no weight, no token id.

    Attributes:
        bucket: the static shape.
        architecture: the Hugging Face configuration without identity and defaults of generation.
        dtype: of weights, KV cache and logits: `float32`, `bfloat16` or `float16`.
        max_model_len: sets the width of the prefill block table.
        block_size: tokens per KV block.
        num_blocks: KV blocks, the null block included.
    """

    bucket: Bucket
    architecture: Mapping[str, Any]
    dtype: str
    max_model_len: int
    block_size: int
    num_blocks: int


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of one tensor that enters or leaves a graph."""

    name: str
    shape: tuple[int, ...]
    dtype: str


WeightLayout = Literal["plain", "packed"]
"""How a weight is stored: as the checkpoint has it, or in the order in which a backend reads it."""


@dataclass(frozen=True)
class ConstantSpec:
    """A weight or buffer that a graph reads.

    Attributes:
        name: what the compiled graph calls it.
        weight: its name in the artifact's weights, or in the graph's own `constants.safetensors`.
        shape: its shape.
        dtype: its dtype.
        parts: the checkpoint's weights that it is stacked from, along their first dimension; none
            for one that the checkpoint has under this very name.
        layout: how it is stored.
    """

    name: str
    weight: str
    shape: tuple[int, ...]
    dtype: str
    parts: tuple[str, ...] = ()
    layout: WeightLayout = "plain"
