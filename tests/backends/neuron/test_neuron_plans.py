"""What a logical core must hold under the trace binding: weights and KV once for each graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from neuron_llm.compile.config_file import load_config
from neuron_llm.compile.plan import CompilePlan, plan_compile
from neuron_llm.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"
GIB = 2**30
_BASE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
LLAMA_1B = {
    **_BASE,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "head_dim": 64,
    "tie_word_embeddings": True,
}
LLAMA_8B = {
    **_BASE,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "head_dim": 128,
    "tie_word_embeddings": False,
}


def planned(directory: Path, name: str, architecture: dict[str, object]) -> CompilePlan:
    text = (CONFIGS / f"{name}.yaml").read_text()
    model = directory / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(architecture))
    config = directory / f"{name}.yaml"
    config.write_text(text.replace(yaml.safe_load(text)["model"], str(model)))
    loaded = load_config(config, skip_weights=True)
    assert loaded.model_spec is not None
    return plan_compile(loaded, loaded.model_spec)


@pytest.mark.parametrize(
    ("name", "num_graphs", "kv_bytes_per_token"),
    [("llama-3.2-1b-inf2", 3, 32768), ("llama-3.2-1b-trn2", 4, 32768)],
)
def test_llama_1b_fits_one_core(
    name: str, num_graphs: int, kv_bytes_per_token: int, tmp_path: Path
) -> None:
    plan = planned(tmp_path, name, LLAMA_1B)
    memory = plan.memory
    assert len(plan.buckets.all) == memory.num_copies == num_graphs
    assert memory.weights_bytes == pytest.approx(2.47e9, rel=0.01)
    num_tokens = plan.max_num_seqs * plan.max_model_len + plan.block_size
    assert memory.kv_cache_bytes == num_tokens * kv_bytes_per_token
    both = memory.weights_bytes + memory.kv_cache_bytes
    assert memory.total_bytes == num_graphs * both + memory.activation_bytes
    assert (
        memory.total_bytes < (14.4 if plan.neuron and plan.neuron.target == "inf2" else 21.6) * GIB
    )


def test_llama_8b_does_not_fit_inf2(tmp_path: Path) -> None:
    # 15 GiB of weights are more than the 14.4 GiB of one copy already.
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, "llama-3.2-1b-inf2", LLAMA_8B)
    (fault,) = caught.value.faults
    assert "a logical core of inf2 has" in fault


def test_llama_8b_does_not_fit_trn2_once_for_each_graph(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, "llama-3.2-1b-trn2", LLAMA_8B)
    (fault,) = caught.value.faults
    assert "has 21.6 GiB to use, and" in fault
    assert "needed for 4 graphs (weights, 4 copies, 59.83 GiB, KV cache, 4 copies, 16.02 " in fault
    assert "give fewer buckets" in fault
