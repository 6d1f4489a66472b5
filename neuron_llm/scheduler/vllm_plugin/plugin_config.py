"""What the holdback scheduler is told through vLLM: vLLM's own limits, and `additional_config`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.v1.kv_cache_interface import MambaSpec

from neuron_llm.errors import ConfigError
from neuron_llm.scheduler.block_pool import num_blocks_for
from neuron_llm.scheduler.buckets import (
    get_default_num_batched_tokens_buckets,
    get_default_num_seqs_buckets,
)
from neuron_llm.scheduler.config import SchedulerConfig
from neuron_llm.scheduler.vllm_plugin import versions

_BUCKET_KEYS = ("num_batched_tokens_buckets", "num_seqs_buckets")
_KEYS = (*_BUCKET_KEYS, "kv_admission", "max_consecutive_prefills")


def read_neuron_config(scheduler: Any) -> dict[str, Any]:
    """Return the keys of `neuron_config` in vLLM's `additional_config`.

    Raises:
        ConfigError: with one fault for every unknown key and every list that holds no buckets.
    """
    additional_config = scheduler.vllm_config.additional_config
    if not isinstance(additional_config, dict):
        return {}
    neuron_config = additional_config.get("neuron_config", {})
    if not isinstance(neuron_config, dict):
        raise ConfigError("`neuron_config` in `additional_config` must be a JSON object")
    faults = [
        f"`neuron_config.{key}` is not known, the keys are {', '.join(_KEYS)}"
        for key in neuron_config
        if key not in _KEYS
    ]
    faults += [
        f"`neuron_config.{key}` is {neuron_config[key]!r}, it must be a list of integers"
        for key in _BUCKET_KEYS
        if key in neuron_config and not _is_integers(neuron_config[key])
    ]
    limit = neuron_config.get("max_consecutive_prefills")
    if limit is not None and not _is_integers([limit]):
        faults.append(
            f"`neuron_config.max_consecutive_prefills` is {limit!r}, it must be an integer"
        )
    _raise_faults(faults)
    return neuron_config


def make_scheduler_config(scheduler: Any, neuron_config: dict[str, Any]) -> SchedulerConfig:
    """Return the holdback scheduler's limits.

    Args:
        scheduler: vLLM's, complete.
        neuron_config: see `read_neuron_config`.

    Raises:
        ConfigError: a limit breaks its rule, the KV cache holds no request of `max_model_len`, or
            vLLM is to do what the holdback scheduler cannot.
    """
    _raise_faults(_unsupported(scheduler))
    max_model_len = scheduler.max_model_len
    largest = min(scheduler.max_num_scheduled_tokens, max_model_len)
    buckets = neuron_config.get("num_batched_tokens_buckets")
    config = SchedulerConfig(
        max_num_seqs=versions.active_limit(scheduler),
        max_num_batched_tokens=scheduler.max_num_scheduled_tokens,
        max_model_len=max_model_len,
        block_size=scheduler.block_size,
        num_blocks=scheduler.kv_cache_config.num_blocks,
        num_batched_tokens_buckets=tuple(
            get_default_num_batched_tokens_buckets(largest) if buckets is None else buckets
        ),
        enable_prefix_caching=scheduler.cache_config.enable_prefix_caching,
        kv_admission=neuron_config.get("kv_admission", "reserve"),
        max_consecutive_prefills=neuron_config.get("max_consecutive_prefills"),
        policy=scheduler.scheduler_config.policy,
    )
    needed = num_blocks_for(max_model_len - 1, config.block_size)
    if needed > config.num_blocks - 1:
        # vLLM's own check forgets the null block, and a request that never fits would only show
        # when it is too late to refuse it alone.
        raise ConfigError(
            f"the KV cache has {config.num_blocks} blocks and a request of `max_model_len` "
            f"{max_model_len} needs {needed + 1}: {needed} for its tokens and the null block",
            hint="give the KV cache more memory or lower `--max-model-len`",
        )
    return config


def make_num_seqs_buckets(
    neuron_config: dict[str, Any], config: SchedulerConfig
) -> tuple[int, ...]:
    """Return the decode batch sizes that a model runner pads to.

    Raises:
        ConfigError: they do not ascend to `max_num_seqs`.
    """
    given = neuron_config.get("num_seqs_buckets")
    buckets = get_default_num_seqs_buckets(config.max_num_seqs) if given is None else list(given)
    if not buckets or buckets != sorted(set(buckets)) or buckets[0] < 1:
        _raise_faults([f"`num_seqs_buckets` {buckets} must be positive and ascend"])
    if buckets[-1] != config.max_num_seqs:
        _raise_faults(
            [f"`num_seqs_buckets` {buckets} must end with `max_num_seqs` {config.max_num_seqs}"]
        )
    return tuple(buckets)


def _unsupported(scheduler: Any) -> list[str]:
    """Return why vLLM's configuration does not go with the holdback scheduler."""
    vllm_config = scheduler.vllm_config
    model_config = vllm_config.model_config
    groups = scheduler.kv_cache_config.kv_cache_groups
    has_one_attention = len(groups) == 1 and not isinstance(groups[0].kv_cache_spec, MambaSpec)
    unsupported = {
        "speculative decoding puts several tokens into a decode row": (
            vllm_config.speculative_config is not None
        ),
        "LoRA adapters are counted by batch, and a batch is only a part of what runs": (
            vllm_config.lora_config is not None
        ),
        "pooling models have no decode phase": model_config.runner_type == "pooling",
        "encoder-decoder models need KV blocks that admission does not count": (
            model_config.is_encoder_decoder
        ),
        f"{len(groups)} KV cache groups were found, one group of attention layers is supported "
        "(`--disable-hybrid-kv-cache-manager` may make one of several)": not has_one_attention,
    }
    return [reason for reason, applies in unsupported.items() if applies]


def _is_integers(values: Any) -> bool:
    return isinstance(values, Sequence) and all(
        isinstance(value, int) and not isinstance(value, bool) for value in values
    )


def _raise_faults(faults: list[str]) -> None:
    if faults:
        message = f"the scheduler cannot start: {'; '.join(faults)}"
        raise ConfigError(message, faults=tuple(faults))
