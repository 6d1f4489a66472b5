"""vLLM's own engine and model runner say the same under either scheduler."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

pytest.importorskip("vllm.v1.core.sched.async_scheduler")

MODEL = ROOT / "models" / "smollm2-135m-instruct"
PLUGIN = "neuron_llm.scheduler.vllm_plugin"
CLASSES = {"sync": f"{PLUGIN}.NeuronScheduler", "async": f"{PLUGIN}.NeuronAsyncScheduler"}

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not MODEL.exists(), reason="`make test-vllm` fetches the model"),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm._C") is None,
        reason="this vLLM has no kernels to run a model with",
    ),
]


@cache
def generate(mode: str, scheduler_cls: str, multiprocessing: str = "0") -> dict[str, Any]:
    script = Path(__file__).parent / "generate_with_vllm.py"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": multiprocessing,
    }
    run = subprocess.run(
        [sys.executable, str(script), str(MODEL), mode, scheduler_cls],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_engine_with_the_plug_in_generates_the_same_tokens(mode: str) -> None:
    stock, ours = generate(mode, "stock"), generate(mode, CLASSES[mode])
    assert stock["scheduler"].startswith("vllm.")
    assert ours["scheduler"].endswith(CLASSES[mode].rpartition(".")[2])
    assert ours["padding_tokens"] > 0
    assert ours["token_ids"] == stock["token_ids"]
    assert ours["finish_reasons"] == stock["finish_reasons"]
    assert [len(token_ids) for token_ids in ours["token_ids"]][4] == 1


def test_the_plug_in_works_in_an_engine_process() -> None:
    ours = generate("async", CLASSES["async"], multiprocessing="1")
    assert ours["token_ids"] == generate("async", "stock")["token_ids"]
