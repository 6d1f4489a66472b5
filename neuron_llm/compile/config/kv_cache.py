"""How many KV blocks an artifact has: baked into the shapes of its graphs, hence never measured."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.backends.neuron.generations import GENERATIONS, DeviceMemory
from neuron_llm.compile.config.config import Config
from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.quantities import DTYPE_BYTES
from neuron_llm.scheduler.block_pool import num_blocks_for

# Block 0 takes the writes of padded slots and is never handed out.
NUM_NULL_BLOCKS = 1


@dataclass(frozen=True, kw_only=True)
class KVCachePlan:
    """The size of the KV cache and the numbers it was computed from.

    Attributes:
        num_blocks: blocks of the cache, the null block included.
        wanted_num_blocks: as many as `max_num_seqs` requests of `max_model_len` fill, the null
            block included.
        needed_num_blocks: the same for one request: with fewer, the longest request never runs.
        block_size: tokens of a block.
        block_bytes: keys and values of one block over all layers.
        budget_bytes: most bytes the cache may take, or None without a bound.
        budget_source: the key that set the number, `num_gpu_blocks_override`, `kv_cache_memory` or
            `neuron_config.target`; empty where nothing but the wanted number did.
        num_layers: see `formula`.
        num_kv_heads: see `formula`.
        head_dim: see `formula`.
        dtype: of keys and values.
    """

    num_blocks: int
    wanted_num_blocks: int
    needed_num_blocks: int
    block_size: int
    block_bytes: int
    budget_bytes: int | None
    budget_source: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that requests can hold: all but the null block."""
        return self.num_blocks - NUM_NULL_BLOCKS

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the whole cache."""
        return self.num_blocks * self.block_bytes

    @property
    def formula(self) -> str:
        """The product that `kv_cache_bytes` is, factor by factor, in words."""
        return (
            f"{self.num_blocks} blocks (1 of them the null block) x {self.block_size} tokens"
            f" x {self.num_layers} layers x 2 (keys and values) x {self.num_kv_heads} heads"
            f" x {self.head_dim} head_dim x {DTYPE_BYTES[self.dtype]} bytes"
        )


def plan_kv_cache(
    config: Config, model: ModelSpec, *, max_model_len: int, dtype: str
) -> KVCachePlan:
    """Return the KV cache of an artifact, a pure function of config, model and target.

    Without a bound it holds `max_num_seqs` requests of `max_model_len`. A budget cuts that, and
    `num_gpu_blocks_override` replaces it. Eight requests of 2,048 tokens in blocks of 32 want
    8 x 64 + 1 = 513 blocks. The number can be too small to serve anything; the rules say so.
    """
    request_blocks = num_blocks_for(max_model_len, config.block_size)
    wanted = config.max_num_seqs * request_blocks + NUM_NULL_BLOCKS
    block_bytes = model.kv_block_bytes(config.block_size, dtype)
    budget_bytes, source = _budget(config, model.weights_bytes(dtype))
    num_blocks = wanted if budget_bytes is None else min(wanted, budget_bytes // block_bytes)
    if config.num_gpu_blocks_override is not None:
        num_blocks, budget_bytes = config.num_gpu_blocks_override, None
        source = "num_gpu_blocks_override"
    return KVCachePlan(
        num_blocks=num_blocks,
        wanted_num_blocks=wanted,
        needed_num_blocks=request_blocks + NUM_NULL_BLOCKS,
        block_size=config.block_size,
        block_bytes=block_bytes,
        budget_bytes=budget_bytes,
        budget_source=source,
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=dtype,
    )


def device_memory(config: Config) -> DeviceMemory | None:
    """Return the device that the config compiles for, or None for the CPU."""
    target = config.neuron_config.target
    if config.backend != "neuron" or target is None:
        return None
    cores = config.neuron_config.logical_nc_config
    return DeviceMemory(target, cores or GENERATIONS[target].default_logical_nc_config)


def _budget(config: Config, weights_bytes: int) -> tuple[int | None, str]:
    explicit_bytes = config.kv_cache_memory_bytes
    if explicit_bytes is not None:
        return explicit_bytes, "kv_cache_memory"
    device = device_memory(config)
    if device is not None:
        return device.kv_budget_bytes(weights_bytes), "neuron_config.target"
    return None, ""
