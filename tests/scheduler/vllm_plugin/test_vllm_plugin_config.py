from __future__ import annotations

from typing import Any

import pytest
from scheduler_factory import make_config
from vllm_factory import (
    StructuredOutputManager,
    make_kv_cache_config,
    make_vllm_config,
    make_vllm_scheduler,
    neuron_config_of,
)

from neuron_llm.errors import ConfigError
from neuron_llm.scheduler.vllm_plugin import NeuronScheduler
from neuron_llm.scheduler.vllm_plugin.plugin_config import make_scheduler_config

pytestmark = pytest.mark.filterwarnings("default")


def make(neuron_config: dict[str, Any] | None = None, **limits: Any) -> Any:
    config = make_config(**limits)
    return make_vllm_scheduler(NeuronScheduler, config, make_vllm_config(config, neuron_config))


def test_without_neuron_config_the_buckets_are_powers_of_two_and_the_maximum() -> None:
    scheduler = make(
        max_num_seqs=6, max_num_batched_tokens=3000, max_model_len=4000, num_blocks=2001
    )
    assert scheduler.num_batched_tokens_buckets == (128, 256, 512, 1024, 2048, 3000)
    assert scheduler.num_seqs_buckets == (1, 2, 4, 6)
    assert scheduler.max_consecutive_prefills is None


def test_the_largest_bucket_is_the_largest_chunk_that_can_occur() -> None:
    assert make(max_num_batched_tokens=300).num_batched_tokens_buckets == (64,)


def test_neuron_config_sets_buckets_and_admission() -> None:
    scheduler = make(
        {
            "num_batched_tokens_buckets": [4, 16],
            "num_seqs_buckets": [2, 4],
            "kv_admission": "max_model_len",
            "max_consecutive_prefills": 3,
        }
    )
    assert scheduler.num_batched_tokens_buckets == (4, 16)
    assert scheduler.num_seqs_buckets == (2, 4)
    assert scheduler.max_consecutive_prefills == 3
    assert scheduler._max_kv_concurrent == 4


@pytest.mark.parametrize(
    ("neuron_config", "fault"),
    [
        ({"num_batched_token_buckets": [16]}, "`neuron_config.num_batched_token_buckets` is not"),
        ({"num_batched_tokens_buckets": "16"}, "must be a list of integers"),
        ({"num_batched_tokens_buckets": [8, True]}, "must be a list of integers"),
        ({"num_batched_tokens_buckets": [8]}, "must end with the largest chunk, 16"),
        ({"num_batched_tokens_buckets": [16, 8]}, "must be positive and ascend"),
        ({"num_seqs_buckets": []}, "must be positive and ascend"),
        ({"num_seqs_buckets": [2, 1]}, "must be positive and ascend"),
        ({"num_seqs_buckets": [1, 2]}, "must end with `max_num_seqs` 4"),
        ({"kv_admission": "hope"}, "`kv_admission` is `hope`"),
        ({"max_consecutive_prefills": 0}, "the least is 1"),
        ({"max_consecutive_prefills": "2"}, "must be an integer"),
        ([], "must be a JSON object"),
    ],
)
def test_a_wrong_neuron_config_is_refused(neuron_config: Any, fault: str) -> None:
    config = make_config()
    vllm_config = make_vllm_config(config)
    vllm_config.additional_config = {"neuron_config": neuron_config}
    with pytest.raises(ConfigError, match=fault):
        make_vllm_scheduler(NeuronScheduler, config, vllm_config)


def test_other_keys_of_additional_config_are_not_ours() -> None:
    config = make_config()
    vllm_config = make_vllm_config(config)
    vllm_config.additional_config = {"somebody_elses": 1}
    assert make_vllm_scheduler(NeuronScheduler, config, vllm_config).num_seqs_buckets == (1, 2, 4)


def test_a_priority_policy_is_refused() -> None:
    config = make_config()
    vllm_config = make_vllm_config(config, policy="priority")
    with pytest.raises(ConfigError, match="`policy` is `priority`, only `fcfs` is supported"):
        make_vllm_scheduler(NeuronScheduler, config, vllm_config)


def test_a_kv_cache_without_room_for_the_null_block_is_refused_with_the_number_needed() -> None:
    make(max_model_len=64, block_size=4, num_blocks=17)
    with pytest.raises(ConfigError, match=r"has 16 blocks .* needs 17: 16 for its tokens and the"):
        make(max_model_len=64, block_size=4, num_blocks=16)


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("speculative_config", object(), "speculative decoding"),
        ("lora_config", object(), "LoRA"),
    ],
)
def test_what_static_graphs_cannot_do_is_refused(name: str, value: Any, fault: str) -> None:
    scheduler = make()
    object.__setattr__(scheduler.vllm_config, name, value)
    with pytest.raises(ConfigError, match=fault):
        make_scheduler_config(scheduler, {})


def test_several_kv_cache_groups_are_refused() -> None:
    config = make_config(enable_prefix_caching=False)
    vllm_config = make_vllm_config(config, neuron_config_of(config))
    with pytest.raises(ConfigError, match="2 KV cache groups were found"):
        NeuronScheduler(
            vllm_config=vllm_config,
            kv_cache_config=make_kv_cache_config(config, num_groups=2),
            structured_output_manager=StructuredOutputManager(vllm_config),
            block_size=config.block_size,
        )
