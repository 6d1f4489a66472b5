"""What will be compiled, decided before anything is: a pure function of config and model."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.backends.neuron.target import MODEL_BUILDER, Binding
from neuron_llm.compile.config.bucket_rules import resolve_max_model_len
from neuron_llm.compile.config.config import Config
from neuron_llm.compile.config.fault import Fault, config_error
from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.config.kv_cache import KVCachePlan, device_memory, plan_kv_cache
from neuron_llm.compile.config.rules import broken_rules, resolve_dtype
from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.compile.plan.buckets import plan_buckets, plan_shapes
from neuron_llm.compile.plan.memory import MemoryPlan, plan_memory
from neuron_llm.compile.plan.neuron_code import estimate_code
from neuron_llm.compile.plan.warnings import neuron_warnings, plan_warnings, rope_warnings
from neuron_llm.quantities import shown_bytes
from neuron_llm.scheduler.buckets import BucketSet
from neuron_llm.scheduler.policy.coverage import ReachableShapes, UnreachableBucket


@dataclass(frozen=True)
class OnDeviceSampling:
    """How graphs sample on the device; see `OnDeviceSamplingConfig`."""

    all_greedy: bool
    max_top_k: int
    deterministic: bool


@dataclass(frozen=True)
class NeuronPlan:
    """What only the neuron backend reads, resolved; see `NeuronConfig`."""

    target: str
    logical_nc_config: int
    kv_segment_size_buckets: tuple[int, ...]
    compiler_args: tuple[str, ...]
    binding: Binding
    on_device_sampling: OnDeviceSampling | None


@dataclass(frozen=True, kw_only=True)
class CompilePlan:
    """One artifact before it exists. Every value is resolved: no `auto`, no default left open.

    Attributes:
        name: of the artifact.
        backend: `cpu` or `neuron`.
        dtype: of weights, activations and KV cache.
        max_model_len: prompt and output together, in tokens.
        max_num_seqs: most requests running together.
        max_num_batched_tokens: most tokens of one prefill step, never more than `max_model_len`.
        block_size: tokens of one KV block.
        num_blocks: KV blocks, the null block included.
        enable_prefix_caching: see `Config`.
        async_scheduling: see `Config`.
        kv_admission: see `Config`.
        max_consecutive_prefills: see `Config`.
        model: what is compiled.
        buckets: the graphs.
        unreachable: buckets that were asked for and that no step can need.
        shapes: the greatest counts that can occur; `buckets` holds them all.
        kv_cache: where `num_blocks` comes from.
        memory: what running will take.
        neuron: settings of the neuron backend, None for the others.
        warnings: what works, but perhaps not as meant; one sentence each.
    """

    name: str
    backend: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    enable_prefix_caching: bool
    async_scheduling: bool
    kv_admission: str
    max_consecutive_prefills: int | None
    model: ModelSpec
    buckets: BucketSet
    unreachable: tuple[UnreachableBucket, ...]
    shapes: ReachableShapes
    kv_cache: KVCachePlan
    memory: MemoryPlan
    neuron: NeuronPlan | None
    warnings: tuple[str, ...]

    @property
    def samples_greedily(self) -> bool:
        """Whether graphs give the most likely token instead of the logits."""
        return self.neuron is not None and self.neuron.on_device_sampling is not None


def plan_compile(
    loaded: LoadedConfig, model: ModelSpec, *, auto_binding: Binding = "trace"
) -> CompilePlan:
    """Return what compiling this config for this model means.

    Args:
        loaded: the config.
        model: sizes of its model.
        auto_binding: what `neuron_config.binding: auto` means, see `installed_binding`. The
            number of KV blocks does not depend on it.

    Raises:
        ConfigError: rules that only the model could decide, or more memory than the device has.
    """
    _check_rules(loaded, model)
    config = loaded.config
    dtype = resolve_dtype(config, model)
    max_model_len = resolve_max_model_len(config, model)
    assert max_model_len is not None, "the model was given"
    kv_cache = plan_kv_cache(config, model, max_model_len=max_model_len, dtype=dtype)
    shapes = plan_shapes(config, max_model_len, kv_cache.num_usable_blocks)
    buckets, unreachable = plan_buckets(config, max_model_len, shapes)
    neuron = _plan_neuron(config, auto_binding)
    if neuron is None:
        # The operators read the cache in place.
        memory = plan_memory(buckets, model, kv_cache, num_gathered_keys=None)
    else:
        memory = _plan_neuron_memory(neuron, buckets, model, kv_cache, max_model_len)
    _check_device_memory(loaded, memory)
    return CompilePlan(
        name=loaded.name,
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_batched_tokens=min(config.max_num_batched_tokens, max_model_len),
        num_blocks=kv_cache.num_blocks,
        model=model,
        buckets=buckets,
        unreachable=unreachable,
        shapes=shapes,
        kv_cache=kv_cache,
        memory=memory,
        neuron=neuron,
        warnings=(
            *plan_warnings(config, shapes, kv_cache, unreachable),
            *rope_warnings(model, max_model_len),
            *neuron_warnings(config, memory),
        ),
        backend=config.backend,
        max_num_seqs=config.max_num_seqs,
        block_size=config.block_size,
        enable_prefix_caching=config.enable_prefix_caching,
        async_scheduling=config.async_scheduling,
        kv_admission=config.kv_admission,
        max_consecutive_prefills=config.max_consecutive_prefills,
    )


def _check_rules(loaded: LoadedConfig, model: ModelSpec) -> None:
    """Loading checked them already where the model lay on this machine."""
    faults = broken_rules(loaded.config, model)
    if faults:
        raise config_error(str(loaded.path), faults, loaded.lines)


def _plan_neuron_memory(
    neuron: NeuronPlan,
    buckets: BucketSet,
    model: ModelSpec,
    kv_cache: KVCachePlan,
    max_model_len: int,
) -> MemoryPlan:
    """A prefill gathers a segment at a time; separately traced graphs have copies of their own."""
    return plan_memory(
        buckets,
        model,
        kv_cache,
        num_gathered_keys=max(neuron.kv_segment_size_buckets or (max_model_len,)),
        num_copies=1 if neuron.binding == MODEL_BUILDER else len(buckets.all),
        code=estimate_code(
            buckets,
            model,
            max_model_len=max_model_len,
            num_physical_cores=neuron.logical_nc_config,
        ),
    )


def _check_device_memory(loaded: LoadedConfig, memory: MemoryPlan) -> None:
    device = device_memory(loaded.config)
    if device is None or memory.total_bytes <= device.usable_bytes:
        return
    parts = ", ".join(f"{name} {shown_bytes(num_bytes)}" for name, num_bytes in memory.contributors)
    num_graphs = len(memory.graphs)
    fault = Fault(
        "neuron_config.target",
        f"a logical core of {device.target} has {shown_bytes(device.usable_bytes)} to use, and"
        f" {shown_bytes(memory.total_bytes)} are needed for {num_graphs} graphs ({parts});"
        f" {_way_to_fit(memory, device.usable_bytes)}",
    )
    raise config_error(str(loaded.path), [fault], loaded.lines)


def _way_to_fit(memory: MemoryPlan, usable_bytes: int) -> str:
    smaller = (
        "lower `kv_cache_memory`, `max_model_len` or the largest bucket, or give a smaller model"
    )
    if memory.num_copies == 1:
        return smaller
    if memory.shared_bytes <= usable_bytes:
        return (
            "write `binding: model_builder`, under which all graphs share one copy and"
            f" {shown_bytes(memory.shared_bytes)} are needed, or give fewer buckets"
        )
    return (
        f"with `binding: model_builder` it would be {shown_bytes(memory.shared_bytes)}; {smaller}"
    )


def _plan_neuron(config: Config, auto_binding: Binding) -> NeuronPlan | None:
    device, neuron = device_memory(config), config.neuron_config
    if device is None:
        return None
    sampling = neuron.on_device_sampling_config
    return NeuronPlan(
        target=device.target,
        logical_nc_config=device.logical_nc_config,
        kv_segment_size_buckets=neuron.kv_segment_size_buckets or (),
        compiler_args=neuron.compiler_args,
        binding=auto_binding if neuron.binding == "auto" else neuron.binding,
        on_device_sampling=OnDeviceSampling(**sampling.model_dump()) if sampling else None,
    )
