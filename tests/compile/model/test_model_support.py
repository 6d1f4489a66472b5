import json
from typing import Any

import pytest
from config_factory import TINY_CONFIG
from families import FAMILIES
from repository import SHARED_DATA

from neuron_llm.compile.model.model_spec import spec_from_config
from neuron_llm.compile.model.model_support import check_supported
from neuron_llm.errors import UnsupportedModelError

REAL_CONFIGS = SHARED_DATA / "configs"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_encoder_decoder": True}, "has an encoder and a decoder (`is_encoder_decoder`"),
        ({"vision_config": {"depth": 1}}, "is multimodal"),
        ({"text_config": {"hidden_size": 8}}, "is multimodal"),
        ({"audio_config": {"depth": 1}}, "is multimodal"),
        ({"model_type": "mamba2"}, "hybrid or state-space) (`model_type`"),
        ({"mamba_num_heads": 8}, "hybrid or state-space) (`mamba_num_heads`"),
        ({"ssm_state_size": 8}, "hybrid or state-space) (`ssm_state_size`"),
        ({"linear_num_key_heads": 8}, "hybrid or state-space) (`linear_num_key_heads`"),
        ({"hybrid_override_pattern": "M*"}, "hybrid or state-space) (`hybrid_override_pattern`"),
        ({"layers_block_type": ["mamba"]}, "hybrid or state-space) (`layers_block_type`"),
        ({"layer_types": ["linear_attention"]}, "has layers of type `linear_attention`"),
        ({"layer_types": ["chunked_attention"]}, "has layers of type `chunked_attention`"),
        ({"layer_types": "full"}, "describes its layers in an unknown way"),
        ({"kv_lora_rank": 512}, "multi-head latent attention) (`kv_lora_rank`"),
        ({"index_topk": 2048}, "sparse attention) (`index_topk`"),
        (
            {"model_type": "llama4_text", "attention_chunk_size": 8192},
            "attends within chunks (`attention_chunk_size`",
        ),
        ({"num_kv_shared_layers": 10}, "shares one KV cache among layers"),
        ({"quantization_config": {"quant_method": "awq"}}, "is quantised with awq"),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
            "is quantised with fp8",
        ),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
            "is quantised with nvfp4",
        ),
        ({"quantization_config": {"bits": 4}}, "is quantised with an unknown method"),
        ({"architectures": None}, "names no `architectures`"),
        ({"architectures": []}, "names no `architectures`"),
        ({"architectures": ["BertForMaskedLM"]}, "is a `BertForMaskedLM`, not a causal language"),
        ({"architectures": ["LlamaModel"]}, "is a `LlamaModel`, not a causal language model"),
        (
            {"architectures": ["OwnForCausalLM"], "model_type": "own"},
            "which the installed transformers does not contain",
        ),
        ({"model_type": None}, "which the installed transformers does not contain"),
        ({"model_type": "bloom"}, "has an attention of its own, which cannot be replaced"),
        ({"model_type": "falcon"}, "has an attention of its own, which cannot be replaced"),
        ({"model_type": "dbrx"}, "has experts of its own, whose shapes depend on the data"),
        ({"use_bidirectional_attention": True}, "attends in both directions"),
        ({"model_type": "diffllama"}, "subtracts one attention from another"),
        ({"model_type": "doge"}, "hides keys by a mask of its own"),
        ({"model_type": "gemma4_text"}, "has heads of several sizes"),
        ({"model_type": "roberta"}, "is an encoder that may be run as a decoder"),
        ({"model_type": "data2vec-text"}, "is an encoder that may be run as a decoder"),
        ({"model_type": "stablelm"}, "hands nothing on to its attention"),
        ({"model_type": "nemotron"}, "hands nothing on to its attention"),
        (
            {"model_type": "qwen2_moe", "sliding_window": 8, "use_sliding_window": True},
            "does not tell its attention of its sliding window (`sliding_window`",
        ),
        (
            {"model_type": "phimoe", "sliding_window": 8},
            "does not tell its attention of its sliding window (`sliding_window`",
        ),
    ],
)
def test_model_is_refused_by_the_name_of_what_stands_in_the_way(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        check_supported({**TINY_CONFIG, **changes})
    assert reason in caught.value.message
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"vision_config": None, "quantization_config": None, "kv_lora_rank": None},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"is_encoder_decoder": False},
        {"use_bidirectional_attention": False},
        {"model_type": "gemma3_text", "use_bidirectional_attention": "vision"},
        {"model_type": "qwen2_moe", "sliding_window": 8, "use_sliding_window": False},
        # As long as the longest request.
        {"model_type": "phimoe", "sliding_window": 512, "max_position_embeddings": 512},
        # A key that Llama's code does not read.
        {"attention_chunk_size": 128},
        {"auto_map": {"AutoModelForCausalLM": "modeling.Own"}},
    ],
)
def test_keys_that_change_nothing_do_not_refuse_a_model(changes: dict[str, Any]) -> None:
    check_supported({**TINY_CONFIG, **changes})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_the_equivalence_suite_is_supported(family: str) -> None:
    check_supported({**TINY_CONFIG, **FAMILIES[family]})


@pytest.mark.skipif(not REAL_CONFIGS.is_dir(), reason="the collection of configs is not here")
def test_every_real_config_gives_a_spec_or_a_refusal() -> None:
    specs, refusals = {}, {}
    for path in sorted(REAL_CONFIGS.rglob("*.json")):
        config = json.loads(path.read_text())
        try:
            check_supported(config)
            specs[path.stem] = spec_from_config(config)
        except UnsupportedModelError as error:
            refusals[path.stem] = error.message
    billions = {name: round(spec.num_parameters / 1e9, 1) for name, spec in specs.items()}
    assert billions["meta-llama--Meta-Llama-3.1-8B_config"] == 8.0
    assert billions["Qwen--Qwen3-30B-A3B_config"] == 30.5
    assert billions["mistralai--Mixtral-8x7B-v0.1_config"] == 46.7
    assert specs["SmolLM2-135M_config"].head_dim == 64
    assert specs["Llama-3.2-1B-Instruct_config"].eos_token_ids == (128001, 128008, 128009)
    assert billions["openai--gpt-oss-20b_config"] == 20.9
    assert "fp8" in refusals["Qwen--Qwen3-32B-FP8-Static-PerTensor_config"]
    assert "latent attention" in refusals["deepseek-ai--DeepSeek-V3_config"]
    assert "multimodal" in refusals["Qwen--Qwen3-VL-2B-Instruct_config"]
    assert "state-space" in refusals["nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16_config"]
    assert "sparse attention" in refusals["deepseek-ai--DeepSeek-V4-Pro_config"]
