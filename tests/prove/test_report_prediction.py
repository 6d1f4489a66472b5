"""Padding of a real run in the recommended buckets, against what the report predicted of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import run_cli
from repository import SHARED_DATA
from test_smollm2_equivalence import MODEL

from neuron_llm.compile.compiler import compile_artifact
from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.options import CompileOptions
from neuron_llm.compile.plan.plan import plan_compile

PROMPTS = SHARED_DATA / "prompts" / "mmlu_cot_prefixes_57.jsonl"
MAX_DIFFERENCE = 0.01
CONFIG = """\
model: {model}
dtype: float32
max_model_len: 4096
max_num_seqs: 4
max_num_batched_tokens: 512
block_size: 16
neuron_config:
  num_batched_tokens_buckets: [128, 256, 512]   # to be chosen
  num_seqs_buckets: [4]
"""

pytestmark = [
    pytest.mark.prove,
    pytest.mark.skipif(not PROMPTS.is_file(), reason="the prompts are not here"),
]


def compile_config(config: Path, cache_dir: Path) -> Path:
    loaded = load_config(config)
    assert loaded.model_spec is not None
    # Padding does not depend on what the graphs compute.
    options = CompileOptions(cache_dir=cache_dir, num_jobs=2, verify=False)
    plan = plan_compile(loaded, loaded.model_spec)
    return compile_artifact(loaded, plan, options, lambda event: None).artifact


def test_a_run_pads_as_much_as_was_predicted(compile_cache: Path, empty_state: Path) -> None:
    Path("before.yaml").write_text(CONFIG.format(model=MODEL))
    flags = ("--prompts", PROMPTS, "--json")
    predicted = run_cli("bucket-report", "before.yaml", *flags, "--write", "chosen.yaml").document
    advice = predicted["prefill"]["recommended"]
    artifact = compile_config(Path("chosen.yaml"), compile_cache)
    answers = ("--artifact", artifact, "-o", "answers.jsonl", "--max-tokens", 2, "--temperature", 0)
    assert run_cli("run", "--prompts", PROMPTS, *answers, "--ignore-eos").code == 0
    measured = run_cli("bucket-report", "--artifact", artifact, "--json").document
    prefills = [graph for graph in measured["graphs"] if graph["phase"] == "prefill"]
    sums = {
        name: sum(graph[name] for graph in prefills)
        for name in ("num_uses", "num_real_tokens", "num_padded_tokens", "num_cached_tokens")
    }
    print(json.dumps({"predicted": advice, "measured": sums}))
    assert sums["num_padded_tokens"] == pytest.approx(
        advice["num_padded_tokens"], rel=MAX_DIFFERENCE
    )
    assert sums["num_real_tokens"] == advice["num_real_tokens"]
    assert sums["num_uses"] == advice["num_steps"]
    assert sums["num_padded_tokens"] < predicted["prefill"]["current"]["num_padded_tokens"]
