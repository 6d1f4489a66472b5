"""A GGUF file's metadata, under the names that `config.json` would use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuron_llm.compile.safetensors_header import WeightsSummary
from neuron_llm.errors import ModelNotFoundError, UnsupportedModelError

_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "mistral": ("mistral", "MistralForCausalLM"),
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
    "sliding_window": "attention.sliding_window",
    "vocab_size": "vocab_size",
}
_TOKENS_KEY = "tokenizer.ggml.tokens"
_FLOAT_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def read_gguf_config(path: Path) -> tuple[dict[str, Any], WeightsSummary]:
    """Return a GGUF file's metadata as a `config.json` would hold it, and its tensors.

    Quantised weights are expanded when they are loaded; since their own dtype is none that a graph
    computes in, it is given as bfloat16.

    Raises:
        ModelNotFoundError: the file is no GGUF file, or cut short.
        UnsupportedModelError: the architecture is not among those that can be read, or the reader
            (the extra `gguf`) is not installed.
    """
    reader = _open(path)
    architecture = _value(reader, "general.architecture")
    if architecture not in _CLASSES:
        known = ", ".join(f"`{name}`" for name in _CLASSES)
        raise UnsupportedModelError(
            f"`{path}` holds the GGUF architecture `{architecture}`",
            hint=f"give one of {known}, or a Hugging Face directory",
        )
    model_type, class_name = _CLASSES[architecture]
    config: dict[str, Any] = {"model_type": model_type, "architectures": [class_name]}
    for key, gguf_key in _KEYS.items():
        config[key] = _value(reader, f"{architecture}.{gguf_key}")
    if config["vocab_size"] is None and _TOKENS_KEY in reader.fields:
        config["vocab_size"] = len(reader.fields[_TOKENS_KEY].data)
    config["eos_token_id"] = _value(reader, "tokenizer.ggml.eos_token_id")
    weights = _summarise(reader)
    config["tie_word_embeddings"] = not weights.has_output_projection
    return config, weights


def _open(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise UnsupportedModelError(
            f"reading `{path}` needs the `gguf` package",
            hint="run `pip install 'neuron-llm[gguf]'`",
        ) from error
    try:
        return GGUFReader(path)
    # What the reader raises for a file of the wrong kind and for one that ends too early.
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise ModelNotFoundError(
            f"`{path}` is no complete GGUF file", hint="download the file again"
        ) from error


def _value(reader: Any, key: str) -> Any:
    field = reader.fields.get(key)
    return None if field is None else field.contents()


def _summarise(reader: Any) -> WeightsSummary:
    num_elements = {tensor.name: int(tensor.n_elements) for tensor in reader.tensors}
    # Norms stay in 32 bits whatever the matrices are stored in; the largest tensor tells.
    largest = max(reader.tensors, key=lambda tensor: int(tensor.n_elements))
    dtype = _FLOAT_DTYPES.get(largest.tensor_type.name, "bfloat16")
    return WeightsSummary(num_elements, "output.weight", dtype)
