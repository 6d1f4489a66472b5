"""Which models can become static bucket graphs, decided from the keys of their config alone.

A model is refused by the name of the feature that stands in the way, before anything is loaded.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_llm.errors import UnsupportedModelError

_HINT = "give a decoder-only text model such as Llama, Qwen2, Qwen3, Mistral, Gemma or SmolLM2"

_MULTIMODAL_KEYS = ("vision_config", "audio_config", "text_config", "thinker_config")
_STATE_SPACE_PREFIXES = ("mamba_", "ssm_", "linear_num_", "rwkv_", "conv_L_cache")
_STATE_SPACE_KEYS = ("hybrid_override_pattern", "layers_block_type", "attn_layer_period")
_STATE_SPACE_TYPES = frozenset(
    {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "recurrent_gemma", "minimax"}
)
_SPARSE_KEYS = ("index_topk", "compress_ratios")
_ATTENTION_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
_UNEQUAL_HEADS = "has heads of several sizes"
# Families whose code asks for its attention through the interface, and for more than it offers.
_OWN_WAYS = {
    "blt": "computes with patches of bytes",
    "diffllama": "subtracts one attention from another",
    "doge": "hides keys by a mask of its own",
    "gemma4_assistant": _UNEQUAL_HEADS,
    "gemma4_text": _UNEQUAL_HEADS,
    "gemma4_unified_text": _UNEQUAL_HEADS,
    "hrm_text": "goes through its layers more than once",
    "mimo_v2_flash": _UNEQUAL_HEADS,
    "modernbert-decoder": "cannot be built without a padding token",
    "moshi": "is multimodal: its decoder is one part among others",
}
# In transformers' modeling code: what attends, what lets another attention or other experts in.
_ATTENTION_CLASS = re.compile(r"^class \w*Attention\w*\(nn\.Module\):", re.MULTILINE)
_EXPERTS_CLASS = re.compile(r"^class \w*Experts\w*\((nn\.Module|nn\.ModuleList)\):", re.MULTILINE)
_ATTENTION_INTERFACE = "ALL_ATTENTION_FUNCTIONS.get_interface("
_EXPERTS_INTERFACE = "@use_experts_implementation"
_ATTENTION_CALL = re.compile(r"self\.self_attn\((.*?)\n {8}\)", re.DOTALL)
_ENCODER_MASK, _WINDOW_MASK = "create_bidirectional_mask(", "create_sliding_window_causal_mask"


def check_supported(config: Mapping[str, Any]) -> None:
    """Pass a `config.json` whose model the backends can compile.

    Raises:
        UnsupportedModelError: names the feature and the key it was seen in.
    """
    for check in (
        _check_decoder_only,
        _check_text_only,
        _check_attention_in_every_layer,
        _check_plain_kv_cache,
        _check_dequantizable,
        _check_architecture,
        _check_own_ways,
        _check_replaceable_parts,
        _check_told_attention,
    ):
        check(config)


def _refuse(feature: str, key: str, hint: str = _HINT) -> UnsupportedModelError:
    return UnsupportedModelError(f"the model {feature} (`{key}` in its config)", hint=hint)


def _check_decoder_only(config: Mapping[str, Any]) -> None:
    if config.get("is_encoder_decoder") is True:
        raise _refuse("has an encoder and a decoder", "is_encoder_decoder")
    if config.get("use_bidirectional_attention") in (True, "all"):
        raise _refuse("attends in both directions", "use_bidirectional_attention")


def _check_text_only(config: Mapping[str, Any]) -> None:
    for key in _MULTIMODAL_KEYS:
        if config.get(key):
            raise _refuse("is multimodal: its decoder is one part among others", key)


def _check_attention_in_every_layer(config: Mapping[str, Any]) -> None:
    feature = "keeps a recurrent state beside its KV cache (hybrid or state-space)"
    if config.get("model_type") in _STATE_SPACE_TYPES:
        raise _refuse(feature, "model_type")
    for key, value in config.items():
        is_state_space = key.startswith(_STATE_SPACE_PREFIXES) or key in _STATE_SPACE_KEYS
        if is_state_space and value is not None:
            raise _refuse(feature, key)
    layer_types = config.get("layer_types") or []
    if not isinstance(layer_types, list):
        raise _refuse("describes its layers in an unknown way", "layer_types")
    for layer_type in layer_types:
        if layer_type not in _ATTENTION_LAYER_TYPES:
            raise _refuse(f"has layers of type `{layer_type}`", "layer_types")


def _check_plain_kv_cache(config: Mapping[str, Any]) -> None:
    if config.get("kv_lora_rank") is not None:
        raise _refuse("compresses keys and values (multi-head latent attention)", "kv_lora_rank")
    for key in _SPARSE_KEYS:
        if config.get(key) is not None:
            raise _refuse("attends to a selection of its keys (sparse attention)", key)
    if config.get("model_type") == "llama4_text" and config.get("attention_chunk_size"):
        raise _refuse("attends within chunks", "attention_chunk_size")
    if config.get("num_kv_shared_layers"):
        raise _refuse("shares one KV cache among layers", "num_kv_shared_layers")


def _check_dequantizable(config: Mapping[str, Any]) -> None:
    quantization = config.get("quantization_config")
    if not quantization:
        return
    method = "an unknown method"
    if isinstance(quantization, dict):
        inner = quantization.get("quantization")
        named = {**inner, **quantization} if isinstance(inner, dict) else quantization
        method = str(named.get("quant_algo") or named.get("quant_method") or method)
    if method == "mxfp4" or (method == "fp8" and importlib.util.find_spec("accelerate")):
        return
    if method == "fp8":
        raise _refuse(
            "is quantised with fp8, and the package that expands it is not installed",
            "quantization_config",
            hint="install it: `pip install 'neuron-llm[fp8]'`",
        )
    raise _refuse(
        f"is quantised with {method.lower()}",
        "quantization_config",
        hint="give the unquantised checkpoint of the same model, or a `.gguf` file",
    )


def _check_architecture(config: Mapping[str, Any]) -> None:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise UnsupportedModelError("the model's config names no `architectures`", hint=_HINT)
    if not names[0].endswith("ForCausalLM"):
        raise _refuse(f"is a `{names[0]}`, not a causal language model", "architectures")
    if config.get("model_type") not in _known_model_types():
        raise _refuse(
            f"is a `{names[0]}`, which the installed transformers does not contain", "model_type"
        )


def _check_replaceable_parts(config: Mapping[str, Any]) -> None:
    """Attention and experts are ours: the model's code must ask for them through an interface."""
    source = _modeling_source(str(config["model_type"]))
    if _ATTENTION_CLASS.search(source) and _ATTENTION_INTERFACE not in source:
        raise _refuse("has an attention of its own, which cannot be replaced", "model_type")
    if _EXPERTS_CLASS.search(source) and _EXPERTS_INTERFACE not in source:
        raise _refuse("has experts of its own, whose shapes depend on the data", "model_type")


def _check_own_ways(config: Mapping[str, Any]) -> None:
    feature = _OWN_WAYS.get(str(config["model_type"]))
    if feature is not None:
        raise _refuse(feature, "model_type")


def _check_told_attention(config: Mapping[str, Any]) -> None:
    """Whatever decides which keys a query sees must be told to our attention: it has no mask."""
    source = _modeling_source(str(config["model_type"]))
    if _ENCODER_MASK in source and "is_decoder" in source:
        raise _refuse("is an encoder that may be run as a decoder", "model_type")
    if any("**" not in arguments for arguments in _ATTENTION_CALL.findall(source)):
        raise _refuse("hands nothing on to its attention", "model_type")
    window, longest = config.get("sliding_window"), config.get("max_position_embeddings")
    has_window = isinstance(window, int) and isinstance(longest, int) and 0 < window < longest
    if not has_window or config.get("use_sliding_window") is False:
        return
    if _WINDOW_MASK in source and "sliding_window=" not in source:
        raise _refuse("does not tell its attention of its sliding window", "sliding_window")


def _modeling_source(model_type: str) -> str:
    """Return the modeling code of a family, without importing it."""
    from transformers.models.auto.auto_mappings import SPECIAL_MODEL_TYPE_TO_MODULE_NAME

    name = SPECIAL_MODEL_TYPE_TO_MODULE_NAME.get(model_type, model_type).replace("-", "_")
    package = importlib.util.find_spec("transformers")
    assert package is not None and package.origin is not None
    models = Path(package.origin).parent / "models"
    # A part of a family may have a file of its own: `data2vec/modeling_data2vec_text.py`.
    for file in (name, model_type.replace("-", "_")):
        path: Path = models / name / f"modeling_{file}.py"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


def _known_model_types() -> frozenset[str]:
    # The one module that lists the types without importing torch.
    from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES

    return frozenset(CONFIG_MAPPING_NAMES)
