"""A tiny random model of every supported family, and the edges that its attention has.

Between them: tied and untied embeddings, biases, heads wider or narrower than `hidden_size /
num_heads`, odd head counts, windows that begin within a block, every kind of rotary scaling.
"""

from __future__ import annotations

from typing import Any

from tiny_models import VOCAB_SIZE

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 262,
    "eos_token_id": 263,
}
_WINDOW = {"sliding_window": 11}
_ALTERNATING = {**_WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_experts_per_tok": 2}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}


def _longrope(original_max_position_embeddings: int) -> dict[str, Any]:
    return {
        "original_max_position_embeddings": original_max_position_embeddings,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "short_factor": [1.0 + 0.1 * i for i in range(8)],
            "long_factor": [1.5 + 0.5 * i for i in range(8)],
            "original_max_position_embeddings": original_max_position_embeddings,
        },
    }


# Gemma 2 and 3 untie their scaled embeddings here: at random they would only repeat the last token.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**_SIZES, "model_type": "llama", "tie_word_embeddings": True},
    "llama-llama3-rope": {**_SIZES, "model_type": "llama", "rope_parameters": _LLAMA3},
    "llama-yarn-biases": {
        **_SIZES,
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "rope_parameters": _YARN,
    },
    "mistral": {**_SIZES, **_WINDOW, "model_type": "mistral", "head_dim": 24},
    "qwen2": {**_SIZES, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2-windows": {
        **_SIZES,
        **_WINDOW,
        "model_type": "qwen2",
        "use_sliding_window": True,
        "max_window_layers": 1,
    },
    "qwen3": {
        **_SIZES,
        "model_type": "qwen3",
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 24,
    },
    "qwen3-moe": {
        **_SIZES,
        **_EXPERTS,
        "model_type": "qwen3_moe",
        "head_dim": 24,
        "moe_intermediate_size": 32,
        "num_experts": 20,
        "norm_topk_prob": True,
    },
    "gemma": {**_SIZES, "model_type": "gemma", "head_dim": 40, "num_key_value_heads": 1},
    "gemma2": {
        **_SIZES,
        **_ALTERNATING,
        "model_type": "gemma2",
        "tie_word_embeddings": False,
        "head_dim": 24,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 8.0,
    },
    "gemma3": {
        **_SIZES,
        **_ALTERNATING,
        "model_type": "gemma3_text",
        "tie_word_embeddings": False,
        "head_dim": 24,
        "query_pre_attn_scalar": 16,
    },
    "phi3": {**_SIZES, "model_type": "phi3", "num_attention_heads": 8, "num_key_value_heads": 4},
    "phi3-short-factors": {**_SIZES, "model_type": "phi3", **_longrope(64)},
    "phi3-long-factors": {**_SIZES, "model_type": "phi3", **_longrope(8)},
    "smollm3": {**_SIZES, "model_type": "smollm3", "no_rope_layers": [1, 0]},
    "olmo2": {**_SIZES, "model_type": "olmo2"},
    "granite": {
        **_SIZES,
        "model_type": "granite",
        "attention_multiplier": 0.3,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.7,
        "logits_scaling": 4.0,
    },
    "gpt-oss": {
        **_SIZES,
        **_ALTERNATING,
        **_EXPERTS,
        "model_type": "gpt_oss",
        "head_dim": 24,
        "num_local_experts": 4,
    },
    "mixtral": {
        **_SIZES,
        **_EXPERTS,
        **_WINDOW,
        "model_type": "mixtral",
        "num_local_experts": 4,
    },
}

# Eager turns to the long factors within a request; graphs have them from its first token.
SHORTEST_PROMPTS = {"phi3-long-factors": 9}
