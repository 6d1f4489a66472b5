"""What planning must know about a model, read without loading it: no torch, no weights.

A Hugging Face directory is described by its `config.json`, by the headers of its safetensors files
and by `generation_config.json`; a GGUF file describes itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neuron_llm.compile.model.model_support import check_supported
from neuron_llm.compile.model.safetensors_header import WeightsSummary, summarise_weights
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError
from neuron_llm.quantities import DTYPE_BYTES

# These families tie the two ends unless their config says otherwise, and then leave the key out.
_TIED_BY_DEFAULT = ("gemma", "cohere")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The sizes of a decoder-only language model.

    Attributes:
        model_type: transformers' name of the family, such as `llama`.
        architectures: class names from the config; the first one is built.
        num_layers: decoder layers, each with one key and one value cache.
        hidden_size: width of the residual stream.
        num_heads: query heads of a layer.
        num_kv_heads: key and value heads of a layer.
        head_dim: width of one head, a multiple of 8.
        vocab_size: rows of the embedding.
        intermediate_size: width of a dense MLP, or of all experts that one token goes through.
        tie_word_embeddings: whether the output projection is the embedding.
        max_position_embeddings: longest sequence the model knows positions for.
        dtype: the checkpoint's, such as `bfloat16`.
        sliding_window: keys that a query of a sliding layer sees, or None without such layers.
        eos_token_ids: every id that ends a reply, ascending.
        num_parameters: trained numbers, those of a tied projection once.
        has_exact_num_parameters: counted in the weights' headers, not estimated from the sizes.
        short_rope_len: tokens up to which `longrope` has its short factors, or None without them.
    """

    model_type: str
    architectures: tuple[str, ...]
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    dtype: str
    sliding_window: int | None
    eos_token_ids: tuple[int, ...]
    num_parameters: int
    has_exact_num_parameters: bool
    short_rope_len: int | None = None

    def weights_bytes(self, dtype: str) -> int:
        """Return the size of the weights held in `dtype`."""
        return self.num_parameters * DTYPE_BYTES[dtype]

    def kv_block_bytes(self, block_size: int, dtype: str) -> int:
        """Return the size of one KV block over all layers, keys and values."""
        token_bytes = 2 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[dtype]
        return token_bytes * block_size


def read_model_spec(model_path: Path, *, skip_weights: bool = False) -> ModelSpec:
    """Read the spec of a Hugging Face directory or a `.gguf` file.

    Args:
        model_path: the directory or file.
        skip_weights: look at no safetensors, and estimate what their headers would say.

    Raises:
        ModelNotFoundError: nothing readable is there, or it is incomplete.
        UnsupportedModelError: the architecture cannot be compiled into static bucket graphs.
    """
    if model_path.is_file():
        from neuron_llm.compile.model.gguf_spec import read_gguf_config  # numpy comes with it

        config, weights = read_gguf_config(model_path)
        check_supported(config)
        return spec_from_config(config, weights)
    config = read_json(model_path / "config.json")
    quantization_path = model_path / "hf_quant_config.json"
    if quantization_path.is_file() and not config.get("quantization_config"):
        # Some quantised checkpoints say so in this file alone.
        config["quantization_config"] = read_json(quantization_path)
    check_supported(config)
    spec = spec_from_config(config, None if skip_weights else summarise_weights(model_path))
    generation_path = model_path / "generation_config.json"
    if not generation_path.is_file():
        return spec
    more_ids = eos_token_ids(read_json(generation_path))
    return replace(spec, eos_token_ids=tuple(sorted({*spec.eos_token_ids, *more_ids})))


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file that a model directory must have.

    Raises:
        ModelNotFoundError: missing, unreadable, or something else than a JSON object.
    """
    hint = "download the model again, or give another directory as `model`"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or "not readable"
        raise ModelNotFoundError(f"cannot read `{path}`: {reason.lower()}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ModelNotFoundError(f"`{path}` is no JSON: {error}", hint=hint) from error
    if not isinstance(content, dict):
        raise ModelNotFoundError(f"`{path}` holds no JSON object", hint=hint)
    return content


def spec_from_config(config: Mapping[str, Any], weights: WeightsSummary | None = None) -> ModelSpec:
    """Return the spec of a supported model, with exact counts where weights are given.

    Args:
        config: the content of a `config.json` that passed `check_supported`.
        weights: what the checkpoint holds, or None to estimate.

    Raises:
        UnsupportedModelError: a size is missing, is no positive whole number, or fits no kernel.
    """
    num_heads = _size(config, "num_attention_heads")
    spec = ModelSpec(
        model_type=str(config["model_type"]),
        architectures=tuple(config["architectures"]),
        num_layers=_size(config, "num_hidden_layers"),
        hidden_size=_size(config, "hidden_size"),
        num_heads=num_heads,
        num_kv_heads=_optional_size(config, "num_key_value_heads") or num_heads,
        head_dim=_head_dim(config, num_heads),
        vocab_size=_size(config, "vocab_size"),
        intermediate_size=_active_intermediate_size(config),
        tie_word_embeddings=_is_tied(config, weights),
        max_position_embeddings=_size(config, "max_position_embeddings"),
        dtype=_dtype(config, weights),
        sliding_window=_sliding_window(config),
        eos_token_ids=eos_token_ids(config),
        num_parameters=0,
        has_exact_num_parameters=weights is not None,
        short_rope_len=_short_rope_len(config),
    )
    if spec.num_heads % spec.num_kv_heads:
        raise UnsupportedModelError(
            f"{spec.num_heads} attention heads cannot share {spec.num_kv_heads} key-value heads",
            hint="give a model whose `num_attention_heads` is a multiple of `num_key_value_heads`",
        )
    if weights is None:
        return replace(spec, num_parameters=_estimate_num_parameters(spec, config))
    return replace(spec, num_parameters=weights.count_parameters(spec.tie_word_embeddings))


def eos_token_ids(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ids under `eos_token_id`: a number, a list of numbers, or nothing at all."""
    value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    return tuple(sorted({i for i in ids if isinstance(i, int) and not isinstance(i, bool)}))


def _size(config: Mapping[str, Any], key: str) -> int:
    value = _optional_size(config, key)
    if value is None:
        raise UnsupportedModelError(
            f"the model's config has no `{key}`",
            hint="give a decoder-only model with the keys of the Llama family",
        )
    return value


def _optional_size(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnsupportedModelError(
            f"the model's `{key}` is `{json.dumps(value)[:80]}`, not one positive whole number",
            hint="layers of different sizes are not supported; give a model with equal layers",
        )
    return value


def _head_dim(config: Mapping[str, Any], num_heads: int) -> int:
    head_dim = _optional_size(config, "head_dim") or _size(config, "hidden_size") // num_heads
    if head_dim == 0 or head_dim % 8:
        raise UnsupportedModelError(
            f"the model's heads are {head_dim} wide, and attention needs a multiple of 8",
            hint="give a model whose `head_dim` is a multiple of 8",
        )
    return head_dim


def _is_tied(config: Mapping[str, Any], weights: WeightsSummary | None) -> bool:
    if weights is not None and not weights.has_output_projection:
        return True
    tied = config.get("tie_word_embeddings")
    if isinstance(tied, bool):
        return tied
    return str(config["model_type"]).startswith(_TIED_BY_DEFAULT)


def _active_intermediate_size(config: Mapping[str, Any]) -> int:
    """A mixture of experts widens one token's MLP by the number of experts it goes through."""
    width = _optional_size(config, "moe_intermediate_size") or _size(config, "intermediate_size")
    return width * (_optional_size(config, "num_experts_per_tok") or 1)


def _sliding_window(config: Mapping[str, Any]) -> int | None:
    # Qwen writes the window and switches it off beside it.
    if config.get("use_sliding_window") is False:
        return None
    return _optional_size(config, "sliding_window")


def _short_rope_len(config: Mapping[str, Any]) -> int | None:
    parameters = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(parameters, dict):
        return None
    # Phi-3 called it `su` once, and keeps the length beside the parameters.
    if parameters.get("rope_type", parameters.get("type")) not in ("longrope", "su"):
        return None
    key = "original_max_position_embeddings"
    return _optional_size(config, key) or _optional_size(parameters, key)


def _dtype(config: Mapping[str, Any], weights: WeightsSummary | None) -> str:
    named = config.get("dtype") or config.get("torch_dtype")
    if isinstance(named, str) and named not in ("", "auto"):
        return named.removeprefix("torch.")
    return weights.dtype if weights is not None else "float32"


def _estimate_num_parameters(spec: ModelSpec, config: Mapping[str, Any]) -> int:
    """Count the matrices of a gated-MLP decoder; norms, biases and routers are left out."""
    attention = 2 * spec.hidden_size * spec.head_dim * (spec.num_heads + spec.num_kv_heads)
    num_experts = next(
        (
            _optional_size(config, key) or 1
            for key in ("num_experts", "num_local_experts", "n_routed_experts")
            if key in config
        ),
        1,
    )
    active = _optional_size(config, "num_experts_per_tok") or 1
    mlp = 3 * spec.hidden_size * (spec.intermediate_size // active) * num_experts
    ends = spec.vocab_size * spec.hidden_size * (1 if spec.tie_word_embeddings else 2)
    return spec.num_layers * (attention + mlp) + ends
