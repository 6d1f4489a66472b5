"""The rules that join several keys, or a key and the model.

Every rule is a function from the config and, where it could be read, the model to faults. A rule
names the keys it reads, so that one whose key is already known to be wrong is left out instead of
complaining about a value that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from neuron_llm.backends.neuron.generations import EXAMPLE_TARGET, GENERATIONS
from neuron_llm.compile.config.bucket_rules import (
    check_ascending,
    check_contexts,
    check_kv_segments,
    check_seqs_maximum,
    check_tokens_maximum,
    resolve_max_model_len,
)
from neuron_llm.compile.config.config import AUTO, MAX_INT32, Config, NeuronConfig
from neuron_llm.compile.config.fault import Fault, shown
from neuron_llm.compile.config.kv_cache import KVCachePlan, device_memory, plan_kv_cache
from neuron_llm.compile.config.neuron_rules import (
    check_compiler_args,
    check_on_device_sampling,
)
from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.quantities import DTYPE_BYTES, MIB, shown_bytes
from neuron_llm.scheduler.block_pool import ceil_div

_Check = Callable[[Config, ModelSpec | None], Iterator[Fault]]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        keys: dotted paths of all keys that the check reads.
        check: yields a fault for each violation; says nothing where it needs a model it lacks.
    """

    keys: tuple[str, ...]
    check: _Check


def broken_rules(
    config: Config, model: ModelSpec | None, wrong_keys: frozenset[str] = frozenset()
) -> list[Fault]:
    """Return a fault for every violation.

    Args:
        config: values that each satisfy their own type; those of `wrong_keys` are defaults.
        model: None when it cannot be read (yet): rules that need it are left out.
        wrong_keys: dotted paths of keys whose written value was refused.
    """
    return [
        fault
        for rule in RULES
        if not any(_is_part_of(key, wrong_key) for key in rule.keys for wrong_key in wrong_keys)
        for fault in rule.check(config, model)
    ]


def _is_part_of(key: str, whole: str) -> bool:
    return key == whole or key.startswith(f"{whole}.")


def resolve_dtype(config: Config, model: ModelSpec) -> str:
    """Return the dtype to compile in; `auto` is the checkpoint's."""
    return model.dtype if config.dtype == AUTO else config.dtype


def _check_model_length(config: Config, model: ModelSpec | None) -> Iterator[Fault]:
    length = config.max_model_len
    if model is not None and length is not None and length > model.max_position_embeddings:
        limit = model.max_position_embeddings
        yield Fault(
            "max_model_len",
            f"{length} must be at most {limit}, the positions the model knows"
            f" (`max_position_embeddings`); write {limit} or less",
        )


def _check_dtype(config: Config, model: ModelSpec | None) -> Iterator[Fault]:
    if model is not None and resolve_dtype(config, model) not in DTYPE_BYTES:
        yield Fault(
            "dtype",
            f"`auto` is the checkpoint's `{model.dtype}`, which graphs do not compute in;"
            " write one of `float32`, `bfloat16` and `float16`",
        )


def _check_quantization(config: Config, _: ModelSpec | None) -> Iterator[Fault]:
    if config.quantization is not None:
        yield Fault(
            "quantization",
            f"{config.quantization} is not available in this version; remove the key",
        )


def _check_one_kv_bound(config: Config, _: ModelSpec | None) -> Iterator[Fault]:
    if config.kv_cache_memory != AUTO and config.num_gpu_blocks_override is not None:
        yield Fault(
            "num_gpu_blocks_override",
            f"{config.num_gpu_blocks_override} and `kv_cache_memory` ({config.kv_cache_memory})"
            " both set the number of blocks; remove one of them",
        )


def _check_num_blocks(config: Config, model: ModelSpec | None) -> Iterator[Fault]:
    max_model_len = resolve_max_model_len(config, model)
    if model is None or max_model_len is None or resolve_dtype(config, model) not in DTYPE_BYTES:
        return
    dtype = resolve_dtype(config, model)
    kv = plan_kv_cache(config, model, max_model_len=max_model_len, dtype=dtype)
    if kv.num_blocks < kv.needed_num_blocks:
        yield Fault(
            kv.budget_source,
            f"{kv.num_blocks} KV blocks cannot hold one request of `max_model_len`"
            f" ({max_model_len}), which needs {kv.needed_num_blocks} blocks of {config.block_size}"
            f" tokens, the null block included;"
            f" {_way_to_more_blocks(config, kv, model.weights_bytes(dtype))}",
        )
    if kv.num_blocks * config.block_size > MAX_INT32:
        yield Fault(
            kv.budget_source or "max_num_seqs",
            f"{kv.num_blocks} blocks of {config.block_size} tokens are more slots than the graphs'"
            f" 32-bit indices can name ({MAX_INT32}); lower `max_num_seqs` or `max_model_len`, or"
            " set `kv_cache_memory`",
        )


def _way_to_more_blocks(config: Config, kv: KVCachePlan, weights_bytes: int) -> str:
    if kv.budget_source == "num_gpu_blocks_override":
        return f"write {kv.needed_num_blocks}, or lower `max_model_len`"
    needed_bytes = kv.needed_num_blocks * kv.block_bytes
    if kv.budget_source == "kv_cache_memory":
        return f"write `{ceil_div(needed_bytes, MIB)}MiB`, or lower `max_model_len`"
    device = device_memory(config)
    assert device is not None and kv.budget_bytes is not None, "no third budget"
    there = (
        f"of the {shown_bytes(device.usable_bytes)} to use, a logical core of {device.target} has"
        f" {shown_bytes(kv.budget_bytes)} for them beside {shown_bytes(weights_bytes)} of weights"
    )
    if weights_bytes >= device.usable_bytes:
        return f"{there}; give a smaller model"
    return (
        f"{there}, and they take {shown_bytes(needed_bytes)}; lower `max_model_len`, or give a"
        " smaller model"
    )


def _check_backend_keys(config: Config, _: ModelSpec | None) -> Iterator[Fault]:
    neuron = config.neuron_config
    if config.backend == "neuron":
        if neuron.target is None:
            others = ", ".join(f"`{name}`" for name in GENERATIONS if name != EXAMPLE_TARGET)
            yield Fault(
                "backend",
                "neuron needs `neuron_config.target`, whose memory decides how many KV blocks are"
                f" compiled in; write `target: {EXAMPLE_TARGET}` (or {others}) there",
            )
        return
    for key in NEURON_ONLY_KEYS:
        value = getattr(neuron, key)
        if value != NeuronConfig.model_fields[key].default:
            written = value if not hasattr(value, "model_dump") else value.model_dump()
            yield Fault(
                f"neuron_config.{key}",
                f"{shown(written)} is for `backend: neuron`, and the backend is `{config.backend}`;"
                " remove the key",
            )


def _check_logical_cores(config: Config, _: ModelSpec | None) -> Iterator[Fault]:
    neuron = config.neuron_config
    if neuron.target is None or neuron.logical_nc_config is None:
        return
    generation = GENERATIONS[neuron.target]
    if neuron.logical_nc_config not in generation.logical_nc_configs:
        counts = " or ".join(map(str, generation.logical_nc_configs))
        why = "" if generation.joins_cores else ", whose cores are not joined"
        yield Fault(
            "neuron_config.logical_nc_config",
            f"{neuron.logical_nc_config} must be {counts} for `target: {neuron.target}`{why};"
            f" write {generation.default_logical_nc_config}",
        )


NEURON_ONLY_KEYS = (
    "target",
    "logical_nc_config",
    "kv_segment_size_buckets",
    "compiler_args",
    "binding",
    "on_device_sampling_config",
)
_BUCKET_KEYS = (
    "num_batched_tokens_buckets",
    "num_seqs_buckets",
    "decode_context_length_buckets",
    "kv_segment_size_buckets",
)


def _in_neuron_config(*keys: str) -> tuple[str, ...]:
    return tuple(f"neuron_config.{key}" for key in keys)


def _ascending_rule(key: str) -> Rule:
    return Rule(_in_neuron_config(key), lambda config, _: check_ascending(config, key))


RULES = (
    *(_ascending_rule(key) for key in _BUCKET_KEYS),
    Rule(
        (
            *_in_neuron_config("num_batched_tokens_buckets"),
            "max_num_batched_tokens",
            "max_model_len",
        ),
        check_tokens_maximum,
    ),
    Rule((*_in_neuron_config("num_seqs_buckets"), "max_num_seqs"), check_seqs_maximum),
    Rule((*_in_neuron_config("decode_context_length_buckets"), "max_model_len"), check_contexts),
    Rule(
        (*_in_neuron_config("kv_segment_size_buckets"), "block_size", "max_model_len"),
        check_kv_segments,
    ),
    Rule(("max_model_len",), _check_model_length),
    Rule(("dtype",), _check_dtype),
    Rule(("quantization",), _check_quantization),
    Rule(("kv_cache_memory", "num_gpu_blocks_override"), _check_one_kv_bound),
    Rule(
        (
            *("kv_cache_memory", "num_gpu_blocks_override", "max_model_len", "max_num_seqs"),
            *("block_size", "dtype", "backend"),
            *_in_neuron_config("target", "logical_nc_config"),
        ),
        _check_num_blocks,
    ),
    Rule(("backend", *_in_neuron_config(*NEURON_ONLY_KEYS)), _check_backend_keys),
    Rule(_in_neuron_config("target", "logical_nc_config"), _check_logical_cores),
    Rule(_in_neuron_config("compiler_args"), check_compiler_args),
    Rule(("backend", *_in_neuron_config("on_device_sampling_config")), check_on_device_sampling),
)
