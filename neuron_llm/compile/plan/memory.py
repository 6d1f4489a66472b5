"""How much memory an artifact will need, estimated before it is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.compile.config.kv_cache import KVCachePlan
from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.compile.plan.neuron_code import CodeEstimate
from neuron_llm.quantities import DTYPE_BYTES
from neuron_llm.scheduler.buckets import Bucket, BucketSet, PrefillBucket


@dataclass(frozen=True)
class GraphMemory:
    """What one graph needs while it runs, beside weights and KV cache.

    Attributes:
        name: the bucket's name.
        activation_bytes: estimated peak of the values between the layers.
        num_instructions: estimated; None where code is no matter of the device's memory.
        code_bytes: estimated likewise.
    """

    name: str
    activation_bytes: int
    num_instructions: int | None = None
    code_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What an artifact needs to run.

    Attributes:
        weights_bytes: of one copy.
        kv_cache_bytes: of one copy.
        kv_cache_formula: the factors of `kv_cache_bytes`, in words.
        graphs: one entry per bucket. One graph runs at a time, so they share one peak.
        activation_bytes: the greatest of the graphs' estimates.
        total_bytes: all copies of weights and KV cache, that greatest estimate, and code.
        num_copies: of weights and KV cache: 1 where all graphs share them, or one for each graph.
        code_bytes: of all graphs, estimated; 0 where it is no matter of the device's memory.
    """

    weights_bytes: int
    kv_cache_bytes: int
    kv_cache_formula: str
    graphs: tuple[GraphMemory, ...]
    activation_bytes: int
    total_bytes: int
    num_copies: int = 1
    code_bytes: int = 0

    @property
    def shared_bytes(self) -> int:
        """What it would be with one copy of weights and KV cache."""
        return self.total_bytes - (self.num_copies - 1) * (self.weights_bytes + self.kv_cache_bytes)

    @property
    def contributors(self) -> list[tuple[str, int]]:
        """The parts of `total_bytes`, largest first."""
        largest = max(self.graphs, key=lambda graph: graph.activation_bytes)
        times = f", {self.num_copies} copies," if self.num_copies > 1 else ""
        parts = [
            (f"weights{times}", self.num_copies * self.weights_bytes),
            (f"KV cache{times}", self.num_copies * self.kv_cache_bytes),
            (f"activations of {largest.name}", self.activation_bytes),
            *([("code", self.code_bytes)] if self.code_bytes else []),
        ]
        return sorted(parts, key=lambda part: -part[1])


def plan_memory(
    buckets: BucketSet,
    model: ModelSpec,
    kv_cache: KVCachePlan,
    *,
    num_gathered_keys: int | None,
    num_copies: int = 1,
    code: CodeEstimate | None = None,
) -> MemoryPlan:
    """Return the memory that an artifact of these buckets needs to run.

    Args:
        buckets: every graph of the artifact.
        model: sizes of the layers.
        kv_cache: the whole cache, in the dtype of weights and activations.
        num_gathered_keys: keys that a prefill graph copies out of the cache at a time; None where
            attention reads the cache in place, in prefill and decode.
        num_copies: of weights and KV cache, see `MemoryPlan`.
        code: of the graphs, where it lies in the device's memory.
    """
    graphs = tuple(
        GraphMemory(
            bucket.name,
            estimate_activation_bytes(bucket, model, kv_cache.dtype, num_gathered_keys),
            None if code is None else code.num_instructions[bucket.name],
            None if code is None else code.code_bytes(bucket.name),
        )
        for bucket in buckets.all
    )
    activation_bytes = max(graph.activation_bytes for graph in graphs)
    weights_bytes = model.weights_bytes(kv_cache.dtype)
    code_bytes = 0 if code is None else code.total_bytes
    held_bytes = num_copies * (weights_bytes + kv_cache.kv_cache_bytes)
    return MemoryPlan(
        weights_bytes=weights_bytes,
        kv_cache_bytes=kv_cache.kv_cache_bytes,
        kv_cache_formula=kv_cache.formula,
        graphs=graphs,
        activation_bytes=activation_bytes,
        total_bytes=held_bytes + activation_bytes + code_bytes,
        num_copies=num_copies,
        code_bytes=code_bytes,
    )


def estimate_activation_bytes(
    bucket: Bucket, model: ModelSpec, dtype: str, num_gathered_keys: int | None
) -> int:
    """Estimate the peak of one graph: the residual stream, beside the widest of the other values.

    Those are the heads of attention (with the gathered keys and values and the score matrix, where
    the cache is not read in place), the inside of the MLP, and the logits: one row of a prefill,
    every row of a decode, counted in float32, which sampling wants.
    """
    if isinstance(bucket, PrefillBucket):
        num_tokens, num_rows, num_keys = bucket.num_tokens, 1, num_gathered_keys
    else:
        num_tokens = num_rows = bucket.batch_size
        num_keys = None if num_gathered_keys is None else bucket.max_context_tokens
    itemsize = DTYPE_BYTES[dtype]
    residual_bytes = 2 * num_tokens * model.hidden_size * itemsize
    num_head_rows = num_tokens * (2 * model.num_heads + 2 * model.num_kv_heads)
    attention_bytes = num_head_rows * model.head_dim * itemsize
    if num_keys is not None:
        attention_bytes += 2 * num_rows * num_keys * model.num_kv_heads * model.head_dim * itemsize
        attention_bytes += num_tokens * model.num_heads * num_keys * DTYPE_BYTES["float32"]
    mlp_bytes = 3 * num_tokens * model.intermediate_size * itemsize
    logits_bytes = num_rows * model.vocab_size * DTYPE_BYTES["float32"]
    return residual_bytes + max(attention_bytes, mlp_bytes, logits_bytes)
