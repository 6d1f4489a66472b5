"""What a logical core must hold: weights and KV once for each graph, or once for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_runner import Ended, run_cli
from repository import CONFIGS, DOCS, SHARED_DATA

REAL_CONFIGS = SHARED_DATA / "configs" / "aiconfigurator"
GIB = 2**30
with_real_configs = pytest.mark.skipif(
    not REAL_CONFIGS.is_dir(), reason="the collection of configs is not here"
)
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


def real(name: str) -> dict[str, Any]:
    """Return the published configuration of a model."""
    content: dict[str, Any] = json.loads((REAL_CONFIGS / f"{name}_config.json").read_text())
    return content


def dry_run(
    directory: Path, name: str, architecture: dict[str, Any], changes: dict[str, str] | None = None
) -> Ended:
    """Plan an example for a model of which only the `config.json` is there."""
    text = (CONFIGS / f"{name}.yaml").read_text()
    for written, other in (changes or {}).items():
        assert text.count(written) == 1, written
        text = text.replace(written, other)
    model = directory / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(architecture))
    config = directory / f"{name}.yaml"
    config.write_text(text.replace(yaml.safe_load(text)["model"], str(model)))
    options = ("--dry-run", "--skip-weights", "--json", "--cache-dir", directory / "none")
    return run_cli("compile", config, *options)


def documented(name: str) -> str:
    """Return what the documentation says that a configuration needs in all."""
    text = (DOCS / "neuron.md").read_text()
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}`"))
    return row.split("|")[-3].strip()


def test_every_neuron_example_names_its_binding() -> None:
    for path in CONFIGS.glob("*.yaml"):
        config = yaml.safe_load(path.read_text())
        is_neuron = config["backend"] == "neuron"
        assert ("binding" in config["neuron_config"]) == is_neuron, path


@pytest.mark.parametrize(
    ("name", "num_graphs", "usable_gib"),
    [("llama-3.2-1b-inf2", 3, 14.4), ("llama-3.2-1b-trn2", 4, 21.6)],
)
def test_llama_1b_fits_one_core_once_for_each_graph(
    name: str, num_graphs: int, usable_gib: float, tmp_path: Path
) -> None:
    plan = dry_run(tmp_path, name, LLAMA_1B).document
    assert (plan["binding"], plan["num_copies"], len(plan["graphs"])) == (
        *("trace", num_graphs, num_graphs),
    )
    assert plan["weights_bytes"] == pytest.approx(2.47e9, rel=0.01)
    tokens = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["max_model_len"] * 4 + 32
    assert plan["kv_cache_bytes"] == tokens * 32768
    held = num_graphs * (plan["weights_bytes"] + plan["kv_cache_bytes"])
    assert plan["total_bytes"] == held + plan["activation_bytes"] + plan["code_bytes"]
    assert plan["total_bytes"] < plan["usable_bytes"] == pytest.approx(usable_gib * GIB)
    assert f"{plan['total_bytes'] / GIB:.2f} GiB" == documented(name)


@with_real_configs
@pytest.mark.parametrize(
    ("name", "model", "weights_bytes", "kv_token_bytes"),
    [
        ("llama-3.1-8b-trn2", "meta-llama--Meta-Llama-3.1-8B", 16.06e9, 131072),
        ("qwen3-8b-trn2", "Qwen--Qwen3-8B", 16.38e9, 147456),
    ],
)
def test_an_8b_model_fits_a_trn2_core_once_for_all_graphs(
    name: str, model: str, weights_bytes: float, kv_token_bytes: int, tmp_path: Path
) -> None:
    ended = dry_run(tmp_path, name, real(model))
    assert ended.stderr == ""
    plan = ended.document
    assert (plan["binding"], plan["num_copies"], len(plan["graphs"])) == ("model_builder", 1, 8)
    assert plan["weights_bytes"] == pytest.approx(weights_bytes, rel=1e-3)
    assert plan["kv_cache_bytes"] == (8192 * 4 + 32) * kv_token_bytes
    held = plan["weights_bytes"] + plan["kv_cache_bytes"]
    assert plan["total_bytes"] == held + plan["activation_bytes"] + plan["code_bytes"]
    assert plan["total_bytes"] < plan["usable_bytes"] == pytest.approx(21.6 * GIB)
    assert f"{plan['total_bytes'] / GIB:.2f} GiB" == documented(name)
    # Documented for NKI: 128 x 128 weights a multiplication, and 512 tokens.
    longest = max(graph["num_instructions"] for graph in plan["graphs"])
    assert 1_700_000 < longest < 3_000_000


@with_real_configs
def test_the_same_model_with_copies_is_refused_and_told_the_binding(tmp_path: Path) -> None:
    changes = {"binding: model_builder": "binding: trace"}
    model = real("meta-llama--Meta-Llama-3.1-8B")
    ended = dry_run(tmp_path, "llama-3.1-8b-trn2", model, changes)
    assert ended.code == 1
    error = " ".join(ended.stderr.split())
    assert "a logical core of trn2 has 21.6 GiB to use, and 152.3 GiB are needed" in error
    assert "for 8 graphs (weights, 8 copies, 119.7 GiB, KV cache, 8 copies, 32.03 GiB, " in error
    assert "write `binding: model_builder`, under which all graphs share one copy and 19.5" in error


@with_real_configs
def test_auto_plans_for_what_is_installed_and_says_so(tmp_path: Path) -> None:
    plan = dry_run(tmp_path, "llama-3.2-1b-trn2", LLAMA_1B, {"binding: trace": "binding: auto"})
    assert plan.document["binding"] == "trace"
    assert "`binding: auto` is `trace`, since neuronx-distributed is not installed" in plan.stderr


@with_real_configs
@pytest.mark.parametrize("binding", ["trace", "model_builder"])
def test_llama_8b_does_not_fit_inf2_at_all(binding: str, tmp_path: Path) -> None:
    changes = {
        "target: trn2": "target: inf2",
        "logical_nc_config: 2": "logical_nc_config: 1",
        "binding: model_builder": f"binding: {binding}",
    }
    ended = dry_run(tmp_path, "llama-3.1-8b-trn2", real("meta-llama--Meta-Llama-3.1-8B"), changes)
    assert ended.code == 1
    error = " ".join(ended.stderr.split())
    assert "of the 14.4 GiB to use, a logical core of inf2 has 0 bytes for them" in error
    assert "beside 14.96 GiB of weights; give a smaller model" in error


@with_real_configs
def test_gpt_oss_20b_in_bfloat16_does_not_fit_trn2(tmp_path: Path) -> None:
    # 20.9 billion parameters: one logical core would have to be twice as large.
    model = {k: v for k, v in real("openai--gpt-oss-20b").items() if k != "quantization_config"}
    ended = dry_run(tmp_path, "llama-3.1-8b-trn2", model)
    assert ended.code == 1
    error = " ".join(ended.stderr.split())
    assert "of the 21.6 GiB to use, a logical core of trn2 has 0 bytes for them" in error
    assert "beside 38.94 GiB of weights; give a smaller model" in error
