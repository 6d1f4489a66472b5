"""Every example configuration loads and plans; the demo's is a handful of graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from repository import CONFIGS as CONFIG_DIR
from tiny_models import LLAMA

from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.plan.plan import CompilePlan, plan_compile

CONFIGS = sorted(CONFIG_DIR.glob("*.yaml"))


def plan_example(path: Path, directory: Path) -> CompilePlan:
    """Plan an example as it stands, save that its model is a small one made here."""
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    model = directory / "model"
    model.mkdir()
    config = {**LLAMA, "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    copy = directory / path.name
    text = path.read_text(encoding="utf-8")
    copy.write_text(text.replace(settings["model"], str(model)), encoding="utf-8")
    loaded = load_config(copy)
    assert loaded.model_spec is not None
    return plan_compile(loaded, loaded.model_spec)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_an_example_plans_without_a_warning(path: Path, tmp_path: Path) -> None:
    plan = plan_example(path, tmp_path)
    assert plan.name == path.stem
    assert plan.warnings == ()


def test_the_demo_compiles_a_handful_of_graphs(tmp_path: Path) -> None:
    (path,) = (path for path in CONFIGS if path.stem == "smollm2-135m")
    assert [bucket.name for bucket in plan_example(path, tmp_path).buckets.all] == [
        "prefill_t64", "prefill_t256", "decode_b2_c1024", "decode_b8_c1024",
    ]  # fmt: skip
