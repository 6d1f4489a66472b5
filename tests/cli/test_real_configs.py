"""`compile --dry-run --skip-weights` of published models: planned, or refused with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_runner import Ended, run_cli
from conftest import Compiled
from repository import SHARED_DATA

REAL_CONFIGS = SHARED_DATA / "configs"
PLANNED_TYPES = {
    *("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "minimax_m2"),
}
REASONS = (
    "is quantised with fp8 (`quantization_config`",
    "has experts of its own, whose shapes depend on the data (`model_type`",
    "is multimodal: its decoder is one part among others (`",
    "compresses keys and values (multi-head latent attention) (`kv_lora_rank`",
    "attends to a selection of its keys (sparse attention) (`index_topk`",
    "keeps a recurrent state beside its KV cache (hybrid or state-space) (`",
    "is a `MiMoForCausalLM`, which the installed transformers does not contain",
)


def dry_run(config: Path, *options: str) -> Ended:
    """Plan a `config.json` that stands alone, in the current directory."""
    Path("model").mkdir(exist_ok=True)
    shutil.copyfile(config, "model/config.json")
    Path("real.yaml").write_text("model: model\nmax_num_seqs: 4\nmax_num_batched_tokens: 64\n")
    return run_cli("compile", "real.yaml", "--dry-run", "--skip-weights", "--json", *options)


@pytest.mark.skipif(not REAL_CONFIGS.is_dir(), reason="the collection of configs is not here")
def test_every_real_config_is_planned_or_refused_by_name(empty_state: Path) -> None:
    planned: dict[str, int] = {}
    used_reasons = set()
    configs = sorted(REAL_CONFIGS.rglob("*.json"))
    for path in configs:
        ended = dry_run(path, "--cache-dir", "none")
        assert "Traceback" not in ended.stderr, path
        if ended.code == 0:
            assert json.loads(path.read_text())["model_type"] in PLANNED_TYPES, path
            assert len(ended.document["graphs"]) == 4, "prefill 64, decode 1, 2 and 4"
            planned[path.stem.removesuffix("_config")] = ended.document["weights_bytes"]
        else:
            assert ended.code == 1, path
            error = ended.stderr.splitlines()[0]
            reasons = [
                reason for reason in REASONS if error.startswith(f"error: the model {reason}")
            ]
            assert len(reasons) == 1, (path, error)
            used_reasons.update(reasons)
    assert used_reasons == set(REASONS)
    assert len(configs) == 84 and len(planned) == 39
    # 8.0 and 30.5 billion parameters in bfloat16.
    assert planned["meta-llama--Meta-Llama-3.1-8B"] == pytest.approx(16.06e9, rel=1e-3)
    assert planned["Qwen--Qwen3-30B-A3B"] == pytest.approx(61.06e9, rel=1e-3)


def test_weights_that_are_not_whole_matter_only_where_they_are_looked_at(
    llama: Compiled, empty_state: Path
) -> None:
    model = Path(shutil.copytree(llama.model, "model"))
    (model / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    config = llama.config.read_text().replace(str(llama.model), "model")
    Path("tiny.yaml").write_text(config)
    assert run_cli("compile", "tiny.yaml", "--dry-run", "--cache-dir", "none").code == 1
    ended = run_cli("compile", "tiny.yaml", "--dry-run", "--skip-weights", "--cache-dir", "none")
    assert (ended.code, ended.stderr) == (0, "")
    assert "5 graphs: 0 cached, 5 to build" in ended.stdout
    assert not Path("artifacts").exists()


def test_skip_weights_is_for_plans_alone(empty_state: Path) -> None:
    ended = run_cli("compile", "tiny.yaml", "--skip-weights")
    assert ended.code == 2
    assert "--dry-run" in ended.stderr
