"""GGUF files of small models, written the way the format's own converter writes them.

Names, the order of query and key rows and the shift of Gemma's norms are spelled out here, so that
a test compares two independent accounts of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType as QuantizationType
from tokenizer_factory import BOS, EOS, SPECIAL_TOKENS, byte_level_backend
from transformers import AutoModelForCausalLM

Array = npt.NDArray[Any]

_MODULES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "input_layernorm": "attn_norm",
    "norm": "output_norm",
}
_NORMS = {"post_attention_layernorm": "ffn_norm"}
_GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
# Where a block's scales are: 16-bit floats, the rest of a block may be any bytes.
_SCALES_AT = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "IQ4_NL": (0,), "IQ4_XS": (0,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,),
    "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ1_S": (0,), "TQ1_0": (52,), "TQ2_0": (64,),
}  # fmt: skip
QUANTISED = tuple(_SCALES_AT)


@dataclass
class GgufFile:
    """A written file, and what its tensors are.

    Attributes:
        path: the file.
        weights: numbers that reading it must give, by the model's names.
    """

    path: Path
    weights: dict[str, torch.Tensor] = field(default_factory=dict)


def type_everything(type_name: str) -> Callable[[str, Array], str]:
    """Return the choice of one type for all matrices; vectors stay in 32 bits."""
    return lambda name, array: type_name if array.ndim > 1 else "F32"


def write_gguf_model(
    path: Path,
    model_dir: Path,
    choose_type: Callable[[str, Array], str] = lambda name, array: "F32",
    *,
    metadata: Mapping[str, Any] | None = None,
    extra: Mapping[str, Array] | None = None,
) -> GgufFile:
    """Write a Hugging Face model as GGUF.

    Args:
        path: the file to write.
        model_dir: a Hugging Face directory.
        choose_type: how to store a tensor, by its name in the file.
        metadata: further values; None leaves one out.
        extra: further tensors, by their names in the file.
    """
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    architecture = model.config.model_type.removesuffix("_text")
    writer = gguf.GGUFWriter(path, architecture)
    values = {**_metadata(architecture, model.config), **(metadata or {})}
    for key, value in values.items():
        _add(writer, key, value)
    _add_tokenizer(writer)
    file = GgufFile(path)
    for name, parameter in model.named_parameters():
        _add_weight(writer, file, architecture, model.config, (name, parameter), choose_type)
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def random_blocks(type_name: str, shape: tuple[int, ...], *, seed: int = 0) -> Array:
    """Return bytes that are a valid tensor of a quantised type, `[..., bytes of a row]`."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[QuantizationType[type_name]]
    assert shape[-1] % block_size == 0
    generator = np.random.default_rng(seed)
    num_blocks = int(np.prod(shape)) // block_size
    blocks = generator.integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
    for offset in _SCALES_AT[type_name]:
        scales = generator.uniform(0.0005, 0.002, num_blocks).astype("<f2")
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(*shape[:-1], -1)


def gguf_name(architecture: str, name: str) -> str:
    """Return the file's name of a parameter."""
    modules = _MODULES | (_GEMMA_NORMS if architecture.startswith("gemma") else _NORMS)
    module, _, kind = name.removeprefix("model.").rpartition(".")
    if not module.startswith("layers."):
        return f"{modules[module]}.{kind}"
    _, layer, module = module.split(".", 2)
    return f"blk.{layer}.{modules[module]}.{kind}"


def _add_weight(
    writer: Any,
    file: GgufFile,
    architecture: str,
    config: Any,
    weight: tuple[str, torch.Tensor],
    choose_type: Callable[[str, Array], str],
) -> None:
    name, parameter = weight
    array = parameter.detach().numpy()
    heads = _num_rotated_heads(architecture, name, config)
    shift = np.float32(architecture.startswith("gemma") and name.endswith("norm.weight"))
    stored = (_neighbours(array, heads) if heads else array) + shift
    stored_name = gguf_name(architecture, name)
    type_name = choose_type(stored_name, stored)
    quantisation = QuantizationType[type_name]
    try:
        data = gguf.quantize(stored, quantisation)
    except NotImplementedError:
        data = random_blocks(type_name, stored.shape, seed=len(file.weights))
    writer.add_tensor(stored_name, data, raw_dtype=quantisation)
    values = gguf.dequantize(data, quantisation) - shift
    values = _halves(values, heads) if heads else values
    file.weights[name] = torch.from_numpy(values.copy())


def _num_rotated_heads(architecture: str, name: str, config: Any) -> int | None:
    if architecture != "llama":
        return None
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    return heads.get(name.split(".")[-2])


def _neighbours(array: Array, num_heads: int) -> Array:
    """Put the two halves of each head side by side, as llama.cpp's converter does."""
    halves = array.reshape(num_heads, 2, array.shape[0] // num_heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def _halves(array: Array, num_heads: int) -> Array:
    heads = np.split(array, num_heads)
    return np.concatenate([half for head in heads for half in (head[0::2], head[1::2])])


def _metadata(architecture: str, config: Any) -> dict[str, Any]:
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    values = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
    }
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    if architecture != "gemma2":
        values["rope.freq_base"] = float(rope["rope_theta"])
    if architecture == "phi3":
        share = rope.get("partial_rotary_factor", 1.0)
        values["rope.dimension_count"] = int(head_dim * share)
        values["rope.scaling.original_context_length"] = config.max_position_embeddings
        values["attention.sliding_window"] = config.sliding_window or 0
    else:
        values["attention.key_length"] = values["attention.value_length"] = head_dim
    if architecture == "llama":
        values["rope.dimension_count"] = head_dim
        values["vocab_size"] = config.vocab_size
    if architecture.startswith("gemma"):
        values["attention.sliding_window"] = config.sliding_window
    if architecture == "gemma2":
        values["attn_logit_softcapping"] = float(config.attn_logit_softcapping)
        values["final_logit_softcapping"] = float(config.final_logit_softcapping)
    prefixed: dict[str, Any] = {f"{architecture}.{key}": value for key, value in values.items()}
    return prefixed


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)


def _add_tokenizer(writer: Any) -> None:
    backend = byte_level_backend()
    vocab = backend.get_vocab()
    tokens = sorted(vocab, key=lambda token: vocab[token])
    special = [gguf.TokenType.CONTROL, gguf.TokenType.NORMAL]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([special[token not in SPECIAL_TOKENS] for token in tokens])
    writer.add_token_merges(
        ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ hello"],
    )
    writer.add_bos_token_id(vocab[BOS])
    writer.add_eos_token_id(vocab[EOS])
    writer.add_chat_template("{{ messages[0]['content'] }}")
