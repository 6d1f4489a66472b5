"""Real vLLM schedulers with small limits, made from our own configs and requests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from neuron_llm.scheduler import Request, SchedulerConfig

# Whoever imports this file is skipped where there is no vLLM.
sched_async = pytest.importorskip("vllm.v1.core.sched.async_scheduler")
sched = pytest.importorskip("vllm.v1.core.sched.scheduler")
interface = pytest.importorskip("vllm.v1.core.sched.interface")
kv_cache_manager = pytest.importorskip("vllm.v1.core.kv_cache_manager")
kv_cache_utils = pytest.importorskip("vllm.v1.core.kv_cache_utils")
kv_cache_interface = pytest.importorskip("vllm.v1.kv_cache_interface")
outputs = pytest.importorskip("vllm.v1.outputs")
requests = pytest.importorskip("vllm.v1.request")
sampling = pytest.importorskip("vllm.sampling_params")
vllm_configs = pytest.importorskip("vllm.config")
sha256 = pytest.importorskip("vllm.utils.hashing").sha256
StructuredOutputManager = pytest.importorskip("vllm.v1.structured_output").StructuredOutputManager
float32 = pytest.importorskip("torch").float32

VllmScheduler, VllmAsyncScheduler = sched.Scheduler, sched_async.AsyncScheduler

EOS_TOKEN_ID = 0

_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float16",
}

kv_cache_utils.init_none_hash(sha256)


@cache
def _model_folder() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()
    (Path(folder.name) / "config.json").write_text(json.dumps(_LLAMA))
    return folder


def make_vllm_config(
    config: SchedulerConfig, neuron_config: dict[str, Any] | None = None, **changes: Any
) -> Any:
    """Return vLLM's configuration with the same limits; `changes` are its scheduler's."""
    folder = _model_folder().name
    model_config = vllm_configs.ModelConfig(
        model=folder,
        tokenizer=folder,
        skip_tokenizer_init=True,
        dtype="float16",
        max_model_len=config.max_model_len,
    )
    limits = {
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "max_model_len": config.max_model_len,
        "is_encoder_decoder": False,
        "async_scheduling": False,
    }
    vllm_config = vllm_configs.VllmConfig(
        model_config=model_config,
        scheduler_config=vllm_configs.SchedulerConfig(**{**limits, **changes}),
        cache_config=vllm_configs.CacheConfig(
            block_size=config.block_size, enable_prefix_caching=config.enable_prefix_caching
        ),
        device_config=vllm_configs.DeviceConfig("cpu"),
        additional_config={} if neuron_config is None else {"neuron_config": neuron_config},
    )
    vllm_config.cache_config.num_gpu_blocks = config.num_blocks
    return vllm_config


def make_kv_cache_config(config: SchedulerConfig, num_groups: int = 1) -> Any:
    spec = kv_cache_interface.FullAttentionSpec(
        block_size=config.block_size, num_kv_heads=1, head_size=1, dtype=float32
    )
    groups = [
        kv_cache_interface.KVCacheGroupSpec([f"layer{index}"], spec) for index in range(num_groups)
    ]
    return kv_cache_interface.KVCacheConfig(
        num_blocks=config.num_blocks, kv_cache_tensors=[], kv_cache_groups=groups
    )


def neuron_config_of(config: SchedulerConfig) -> dict[str, Any]:
    """Return what the plug-in must be told to behave as ours does with `config`."""
    return {
        "num_batched_tokens_buckets": list(config.num_batched_tokens_buckets),
        "kv_admission": config.kv_admission,
        "max_consecutive_prefills": config.max_consecutive_prefills,
    }


def make_vllm_scheduler(
    scheduler_class: Any, config: SchedulerConfig, vllm_config: Any = None, **changes: Any
) -> Any:
    """Return vLLM's scheduler or the plug-in's; `changes` are those of vLLM's scheduler config."""
    if vllm_config is None:
        vllm_config = make_vllm_config(config, neuron_config_of(config), **changes)
    return scheduler_class(
        vllm_config=vllm_config,
        kv_cache_config=make_kv_cache_config(config),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=config.block_size,
        log_stats=True,
    )


def make_vllm_request(request: Request, block_size: int, **fields: Any) -> Any:
    """Return vLLM's request with the same prompt and limits, `min_tokens` aside.

    vLLM leaves `min_tokens` to the sampler, which no test here has.
    """
    sampling_params = sampling.SamplingParams(
        max_tokens=request.max_tokens,
        ignore_eos=request.ignore_eos,
        stop_token_ids=sorted(request.stop_token_ids),
        **fields,
    )
    sampling_params.update_from_generation_config({}, EOS_TOKEN_ID)
    return requests.Request(
        request_id=request.request_id,
        prompt_token_ids=list(request.prompt_token_ids),
        sampling_params=sampling_params,
        pooling_params=None,
        cache_salt=request.cache_salt,
        block_hasher=kv_cache_utils.get_request_block_hasher(block_size, sha256),
    )


def make_vllm_output(req_ids: list[str], sampled_token_ids: list[list[int]]) -> Any:
    return outputs.ModelRunnerOutput(
        req_ids=req_ids,
        req_id_to_index={req_id: index for index, req_id in enumerate(req_ids)},
        sampled_token_ids=[list(token_ids) for token_ids in sampled_token_ids],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
