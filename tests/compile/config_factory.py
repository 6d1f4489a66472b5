"""Model directories, configuration files and plans for the tests of the torch-free half."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuron_llm.compile.config.file import LoadedConfig, load_config
from neuron_llm.compile.plan.plan import CompilePlan, plan_compile
from neuron_llm.errors import ConfigError

# A tiny Llama: 2 layers, 2 key-value heads of width 16.
TINY_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "intermediate_size": 128,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
    "torch_dtype": "float32",
    "eos_token_id": 2,
}
# 2 layers x (K and V) x 2 heads x 16 wide x 4 bytes.
TINY_KV_TOKEN_BYTES = 512


def write_model(directory: Path, **changes: Any) -> Path:
    """Write the `config.json` of a tiny model; a change of None removes the key."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {key: value for key, value in {**TINY_CONFIG, **changes}.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(content))
    return directory


def write_config(directory: Path, text: str = "", name: str = "tiny.yaml") -> Path:
    """Write a configuration beside a tiny model; line 1 is the model, the text follows."""
    if not (directory / "model").exists():
        write_model(directory / "model")
    path = directory / name
    path.write_text(f"model: model\n{text}")
    return path


def load(directory: Path, text: str = "") -> LoadedConfig:
    return load_config(write_config(directory, text))


def plan(directory: Path, text: str = "") -> CompilePlan:
    loaded = load(directory, text)
    assert loaded.model_spec is not None
    return plan_compile(loaded, loaded.model_spec)


def faults_in(path: Path, action: Callable[[Path], object] = load_config) -> list[str]:
    """Return the faults of a file, without the directory in front of its name."""
    with pytest.raises(ConfigError) as caught:
        action(path)
    prefix = f"{path}"
    assert all(fault.startswith(prefix) for fault in caught.value.faults)
    count = len(caught.value.faults)
    assert caught.value.message == f"{count} fault{'s' if count > 1 else ''} in `{path}`"
    return [fault.removeprefix(prefix).removeprefix(":") for fault in caught.value.faults]


def faults(directory: Path, text: str) -> list[str]:
    return faults_in(write_config(directory, text))
