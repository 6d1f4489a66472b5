"""Run vLLM's engine on a few prompts and print what it said; a process of its own for each run.

Usage: generate_with_vllm.py MODEL sync|async SCHEDULER_CLASS|stock
"""

from __future__ import annotations

import json
import sys
from typing import Any

from vllm import LLM, SamplingParams

STORY = "Once upon a time there was a small lighthouse at the edge of the sea, and every night "
PROMPTS = [
    ("The capital of France is", 12),
    (STORY * 4 + "its keeper", 24),
    ("def fibonacci(n):", 40),
    (STORY * 4 + "a ship", 24),
    ("Water boils at", 1),
    (STORY * 8, 16),
    ("List three colours:", 30),
    (STORY + "nobody came", 8),
]


def generate(model: str, mode: str, scheduler_cls: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if scheduler_cls != "stock":
        neuron_config = {"num_batched_tokens_buckets": [16, 64], "max_consecutive_prefills": 4}
        chosen = {
            "scheduler_cls": scheduler_cls,
            "additional_config": {"neuron_config": neuron_config},
        }
    llm = LLM(
        model=model,
        dtype="float32",
        enforce_eager=True,
        seed=0,
        max_model_len=256,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        block_size=32,
        # So few that requests wait for blocks.
        num_gpu_blocks_override=16,
        async_scheduling=mode == "async",
        **chosen,
    )
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=n > 20) for _, n in PROMPTS]
    outputs = llm.generate([prompt for prompt, _ in PROMPTS], params, use_tqdm=False)
    # There is no core to look into where the engine runs in a process of its own.
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    return {
        "token_ids": [list(output.outputs[0].token_ids) for output in outputs],
        "finish_reasons": [output.outputs[0].finish_reason for output in outputs],
        "scheduler": type(scheduler).__module__ + "." + type(scheduler).__name__,
        "padding_tokens": getattr(scheduler, "total_padding_tokens", None),
    }


if __name__ == "__main__":
    print(json.dumps(generate(*sys.argv[1:])))
