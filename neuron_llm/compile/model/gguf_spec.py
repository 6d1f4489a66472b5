"""A GGUF file's metadata, under the names that `config.json` would use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_llm.compile.model.gguf_header import GgufHeader, read_gguf_header
from neuron_llm.compile.model.gguf_rope import DIVISORS_TENSOR, rope_parameters
from neuron_llm.compile.model.safetensors_header import WeightsSummary
from neuron_llm.errors import UnsupportedModelError

_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
}
_KEYS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
_TOKEN_KEYS = {
    "bos_token_id": "bos_token_id",
    "pad_token_id": "padding_token_id",
}
# Of several, the last two end a turn and a call of a tool.
_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
FLOAT_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

# The largest of each Gemma scales its scores by the width of its residual stream; no key says so.
_GEMMA_LAYERS_SCALED_BY_HIDDEN_SIZE = {"gemma2": 46, "gemma3": 62}
_GEMMA_KEYS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "sliding_window": "attention.sliding_window",
    "sliding_window_pattern": "attention.sliding_window_pattern",
}
_GEMMA3_LOCAL_ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def read_gguf_config(path: Path) -> tuple[dict[str, Any], WeightsSummary]:
    """Return a GGUF file's metadata as a `config.json` would hold it, and its tensors.

    Quantised weights are expanded when they are converted; since their own dtype is none that a
    graph computes in, it is given as bfloat16.

    Raises:
        ModelNotFoundError: the file is no GGUF file, or cut short.
        UnsupportedModelError: see `gguf_config` and `read_gguf_header`.
    """
    header = read_gguf_header(path)
    config = gguf_config(header)
    tensors = [tensor for tensor in header.tensors.values() if tensor.name != DIVISORS_TENSOR]
    num_elements = {tensor.name: tensor.num_elements for tensor in tensors}
    dtype = FLOAT_DTYPES.get(main_type(header), "bfloat16")
    return config, WeightsSummary(num_elements, _OUTPUT, dtype)


def main_type(header: GgufHeader) -> str:
    """Return how the largest tensor is stored; norms stay in 32 bits whatever matrices are in."""
    return max(header.tensors.values(), key=lambda tensor: tensor.num_elements).type_name


def gguf_config(header: GgufHeader) -> dict[str, Any]:
    """Return the metadata as a `config.json` would hold it; a size that is missing is None.

    Raises:
        UnsupportedModelError: an architecture, or a feature of it, that cannot be read; or one file
            of several.
    """
    architecture = _architecture(header)
    model_type, class_name = _CLASSES[architecture]
    config: dict[str, Any] = {"model_type": model_type, "architectures": [class_name]}
    for key, gguf_key in _KEYS.items():
        config[key] = header.metadata.get(f"{architecture}.{gguf_key}")
    if config["rms_norm_eps"] is None:
        raise _lacks(header, f"{architecture}.{_KEYS['rms_norm_eps']}")
    if _EMBEDDING not in header.tensors:
        raise _lacks(header, _EMBEDDING)
    # Files of models whose vocabulary is padded differ in whether they say so; the rows tell.
    config["vocab_size"] = header.tensors[_EMBEDDING].shape[0]
    config["tie_word_embeddings"] = _OUTPUT not in header.tensors
    config.update(_token_ids(header.metadata))
    config.update(_attention(header, architecture, config))
    return config


def _architecture(header: GgufHeader) -> str:
    num_parts = header.metadata.get("split.count", 1)
    if num_parts != 1:
        raise UnsupportedModelError(
            f"`{header.path}` is one of {num_parts} files",
            hint="join them with `llama-gguf-split --merge`",
        )
    architecture = header.metadata.get("general.architecture")
    if architecture not in _CLASSES:
        known = ", ".join(f"`{name}`" for name in _CLASSES)
        raise UnsupportedModelError(
            f"`{header.path}` holds the GGUF architecture `{architecture}`",
            hint=f"give one of {known}, or a Hugging Face directory",
        )
    return str(architecture)


def _token_ids(metadata: Mapping[str, Any]) -> dict[str, Any]:
    ids = {key: metadata.get(f"tokenizer.ggml.{gguf_key}") for key, gguf_key in _TOKEN_KEYS.items()}
    ends = {metadata.get(f"tokenizer.ggml.{key}") for key in _EOS_KEYS} - {None}
    ids["eos_token_id"] = next(iter(ends), None) if len(ends) < 2 else sorted(ends)
    return ids


def _attention(header: GgufHeader, architecture: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between the families: heads, positions, windows and biases."""
    hidden_size, num_heads = config["hidden_size"], config["num_attention_heads"]
    if not _is_size(hidden_size) or not _is_size(num_heads):
        # Refused by its key where the sizes are checked, and so is the next.
        return {}
    head_dim = config["head_dim"] or hidden_size // num_heads
    if not _is_size(head_dim):
        return {}
    rope = rope_parameters(header, architecture, head_dim)
    num_rotated = header.metadata.get(f"{architecture}.rope.dimension_count", head_dim)
    if architecture == "phi3":
        rope["partial_rotary_factor"] = num_rotated / head_dim
    elif num_rotated != head_dim:
        raise UnsupportedModelError(
            f"`{header.path}` rotates {num_rotated} of {head_dim} dimensions of a head",
            hint="give the model as a Hugging Face directory",
        )
    settings = {"head_dim": head_dim, "rope_parameters": rope}
    if architecture in ("llama", "qwen3"):
        settings["attention_bias"] = "blk.0.attn_q.bias" in header.tensors
    if architecture == "llama":
        settings["mlp_bias"] = "blk.0.ffn_up.bias" in header.tensors
    if architecture == "phi3":
        # Nought stands for none.
        settings["sliding_window"] = header.metadata.get("phi3.attention.sliding_window") or None
    if architecture in _GEMMA_LAYERS_SCALED_BY_HIDDEN_SIZE:
        settings.update(_gemma(header, architecture, {**config, **settings}))
    return settings


def _gemma(header: GgufHeader, architecture: str, config: Mapping[str, Any]) -> dict[str, Any]:
    num_layers = config["num_hidden_layers"]
    is_largest = num_layers == _GEMMA_LAYERS_SCALED_BY_HIDDEN_SIZE[architecture]
    width = config["hidden_size"] // config["num_attention_heads"]
    settings = {"query_pre_attn_scalar": width if is_largest else config["head_dim"]}
    for key, gguf_key in _GEMMA_KEYS.items():
        if f"{architecture}.{gguf_key}" in header.metadata:
            settings[key] = header.metadata[f"{architecture}.{gguf_key}"]
    if architecture == "gemma2" or not _is_size(num_layers):
        return settings
    if "sliding_window" not in settings:
        settings["layer_types"] = ["full_attention"] * num_layers
    local = dict(_GEMMA3_LOCAL_ROPE)
    local["rope_theta"] = header.metadata.get("gemma3.rope.freq_base_swa", local["rope_theta"])
    settings["rope_parameters"] = {
        "full_attention": config["rope_parameters"],
        "sliding_attention": local,
    }
    return settings


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _lacks(header: GgufHeader, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"`{header.path}` has no `{what}`", hint="give another `.gguf` file of the model"
    )
