"""Measure what one step of scheduling costs, ours and vLLM's side by side.

    PYTHONPATH=. python bench/scheduler.py

Timed are decode steps with every running request in them: `schedule()` plus
`update_from_output()`; the runner's output is made beforehand. `neuron` is the scheduler that the
engine runs and `plug-in` is the same holdback logic over vLLM's scheduler; `base` and `vLLM` are
the two without it. All run in this one process, in turns, and what is counted is the thread's own
CPU time, so that neither a busy machine nor the order favours one. Each figure is the median of
many rounds of steps. A round takes milliseconds, as its first steps find the caches of the
processor and of the interpreter filled by somebody else. Without vLLM installed only ours are
measured.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from neuron_llm.scheduler import (
    ModelRunnerOutput,
    NeuronScheduler,
    Request,
    Scheduler,
    SchedulerConfig,
)

NAMES = ["neuron", "base", "plug-in", "vLLM"]
PROMPT_LEN = 100
BLOCK_SIZE = 32
MAX_NUM_BATCHED_TOKENS = 2048
MAX_ROUNDS = 15


@dataclass(frozen=True)
class Row:
    """One line of the table: so many requests, and the microseconds of a step by scheduler."""

    num_running: int
    num_waiting: int
    medians: dict[str, float]


@dataclass(kw_only=True)
class Contender:
    """One scheduler, all of whose running requests decode."""

    name: str
    schedule: Callable[[], Any]
    update: Callable[[Any, Any], Any]
    make_output: Callable[[list[str]], Any]
    num_running: int
    microseconds: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Run prefills until every running request decodes."""
        while True:
            output = self.schedule()
            req_ids = list(output.num_scheduled_tokens)
            self.update(output, self.make_output(req_ids))
            if output.total_num_scheduled_tokens == self.num_running == len(req_ids):
                self.result = self.make_output(req_ids)
                return

    def run(self) -> None:
        """Time one round of decode steps."""
        schedule, update, result = self.schedule, self.update, self.result
        num_steps = steps_per_round(self.num_running)
        start = time.thread_time_ns()
        for _ in range(num_steps):
            output = schedule()
            update(output, result)
        self.microseconds.append((time.thread_time_ns() - start) / 1e3 / num_steps)
        assert output.total_num_scheduled_tokens == self.num_running, "not all requests decoded"


def steps_per_round(num_running: int) -> int:
    """Return the steps in which every request takes the same number of new KV blocks, 4 to 32."""
    return BLOCK_SIZE * max(4, 32 // num_running)


def prompt(index: int) -> list[int]:
    """Return a prompt that shares no prefix with any other."""
    return [index % 1000, index // 1000, *range(PROMPT_LEN - 2)]


def make_config(num_running: int) -> SchedulerConfig:
    """Return limits that let exactly `num_running` requests run, of whatever length."""
    # The rounds, and one more for the prompt.
    max_model_len = steps_per_round(num_running) * (MAX_ROUNDS + 1)
    return SchedulerConfig(
        max_num_seqs=num_running,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        max_model_len=max_model_len,
        block_size=BLOCK_SIZE,
        num_blocks=num_running * max_model_len // BLOCK_SIZE + 1,
        num_batched_tokens_buckets=(128, 512, MAX_NUM_BATCHED_TOKENS),
    )


def make_ours(name: str, cls: type[Scheduler], num_running: int, num_waiting: int) -> Contender:
    """Return one of our schedulers with all its requests added."""
    config = make_config(num_running)
    scheduler = cls(config)
    for index in range(num_running + num_waiting):
        scheduler.add_request(Request(f"r{index}", prompt(index), max_tokens=config.max_model_len))
    return Contender(
        name=name,
        schedule=scheduler.schedule,
        update=scheduler.update_from_output,
        make_output=lambda req_ids: ModelRunnerOutput(req_ids, [[5] for _ in req_ids]),
        num_running=num_running,
    )


class Vllm:
    """Makes vLLM's schedulers; imports vLLM when it is made."""

    def __init__(self, model_folder: str) -> None:
        import torch
        from vllm import config, sampling_params
        from vllm.utils.hashing import sha256
        from vllm.v1 import kv_cache_interface, outputs, request, structured_output
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler

        from neuron_llm.scheduler.vllm_plugin import NeuronScheduler as PluginScheduler

        self._config, self._kv, self._outputs = config, kv_cache_interface, outputs
        self._request, self._structured_output = request, structured_output
        self._sampling_params, self._dtype = sampling_params, torch.float32
        self.scheduler_class, self.plugin_class = VllmScheduler, PluginScheduler
        kv_cache_utils.init_none_hash(sha256)
        self._hasher = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, sha256)
        self._model_folder = model_folder

    def make(self, name: str, cls: Any, num_running: int, num_waiting: int) -> Contender:
        """Return one of vLLM's schedulers with all its requests added."""
        limits = make_config(num_running)
        scheduler = self._make_scheduler(cls, limits)
        for index in range(num_running + num_waiting):
            params = self._sampling_params.SamplingParams(
                max_tokens=limits.max_model_len, ignore_eos=True
            )
            params.update_from_generation_config({}, 2)
            scheduler.add_request(
                self._request.Request(
                    request_id=f"r{index}",
                    prompt_token_ids=prompt(index),
                    sampling_params=params,
                    pooling_params=None,
                    block_hasher=self._hasher,
                )
            )
        return Contender(
            name=name,
            schedule=scheduler.schedule,
            update=scheduler.update_from_output,
            make_output=self._make_output,
            num_running=num_running,
        )

    def _make_scheduler(self, cls: Any, limits: SchedulerConfig) -> Any:
        config = self._config
        vllm_config = config.VllmConfig(
            model_config=config.ModelConfig(
                model=self._model_folder,
                tokenizer=self._model_folder,
                skip_tokenizer_init=True,
                dtype="float16",
                max_model_len=limits.max_model_len,
            ),
            scheduler_config=config.SchedulerConfig(
                max_num_seqs=limits.max_num_seqs,
                max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
                max_model_len=limits.max_model_len,
                is_encoder_decoder=False,
                async_scheduling=False,
            ),
            cache_config=config.CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
            device_config=config.DeviceConfig("cpu"),
        )
        vllm_config.cache_config.num_gpu_blocks = limits.num_blocks
        spec = self._kv.FullAttentionSpec(
            block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=self._dtype
        )
        return cls(
            vllm_config=vllm_config,
            kv_cache_config=self._kv.KVCacheConfig(
                num_blocks=limits.num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[self._kv.KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=self._structured_output.StructuredOutputManager(vllm_config),
            block_size=BLOCK_SIZE,
            log_stats=True,
        )

    def _make_output(self, req_ids: list[str]) -> Any:
        return self._outputs.ModelRunnerOutput(
            req_ids=req_ids,
            req_id_to_index={req_id: index for index, req_id in enumerate(req_ids)},
            sampled_token_ids=[[5] for _ in req_ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )


def measure(
    vllm: Vllm | None, num_running: int, num_waiting: int, num_rounds: int
) -> dict[str, float]:
    """Return the median microseconds of a decode step by scheduler."""
    contenders = [
        make_ours("neuron", NeuronScheduler, num_running, num_waiting),
        make_ours("base", Scheduler, num_running, num_waiting),
    ]
    if vllm is not None:
        contenders += [
            vllm.make("plug-in", vllm.plugin_class, num_running, num_waiting),
            vllm.make("vLLM", vllm.scheduler_class, num_running, num_waiting),
        ]
    for contender in contenders:
        contender.start()
    gc.collect()
    # As vLLM does in its engine: what has been made stays, and collecting would not free it.
    gc.freeze()
    for _ in range(num_rounds):
        for contender in contenders:
            contender.run()
        # Nobody always comes after the same other one, whose data fills the processor's caches.
        random.shuffle(contenders)
    gc.unfreeze()
    contenders.sort(key=lambda contender: NAMES.index(contender.name))
    return {c.name: statistics.median(c.microseconds) for c in contenders}


def load_vllm(folder: str) -> Vllm | None:
    """Return vLLM's schedulers, None if it is not installed."""
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1")
    (Path(folder) / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, '
        '"intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, '
        '"num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 32768, '
        '"rms_norm_eps": 1e-5, "torch_dtype": "float16"}'
    )
    try:
        return Vllm(folder)
    except ModuleNotFoundError as error:
        print(f"vLLM is not measured: {error}", file=sys.stderr)
        return None


def print_rows(rows: list[Row]) -> None:
    """Print the table: microseconds per step, and how much faster ours are."""
    names = list(rows[0].medians)
    ratios = ["vLLM/base", "plug-in/neuron", "vLLM/neuron"] if "vLLM" in names else []
    print("CPU microseconds per decode step (schedule + update_from_output), medians")
    print(" ".join(f"{head:>14}" for head in ["running", "waiting", *names, *ratios]))
    for row in rows:
        cells = [f"{row.num_running:>14}", f"{row.num_waiting:>14}"]
        cells += [f"{row.medians[name]:>14.1f}" for name in names]
        for ratio in ratios:
            theirs, ours = ratio.split("/")
            cells.append(f"{row.medians[theirs] / row.medians[ours]:>13.1f}x")
        print(" ".join(cells))


def print_growth(rows: list[Row]) -> None:
    """Print how the cost of `neuron` grows with running and with waiting requests."""
    cost = {(row.num_running, row.num_waiting): row.medians["neuron"] for row in rows}
    by_running = pairwise(sorted(cost, key=lambda numbers: numbers[::-1]))
    for few, many in [*by_running, *pairwise(sorted(cost))]:
        if few[0] == many[0] or few[1] == many[1]:
            growth = cost[many] / cost[few]
            print(f"neuron, (running, waiting) {few} -> {many}: {growth:.2f}x the time")


def main() -> None:
    """Measure, and print the table and the growth with running and with waiting requests."""
    parser = argparse.ArgumentParser(description="Cost of a scheduling step, ours and vLLM's.")
    parser.add_argument("--running", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--waiting", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=12, help=f"of each, at most {MAX_ROUNDS}")
    args = parser.parse_args()
    ends = sorted({min(args.running), max(args.running)})
    numbers = [(n, args.waiting) for n in args.running]
    numbers += [(n, waiting) for n in ends for waiting in (0, 10 * args.waiting)]
    with tempfile.TemporaryDirectory() as folder:
        vllm = load_vllm(folder)
        rows = [Row(n, waiting, measure(vllm, n, waiting, args.rounds)) for n, waiting in numbers]
    print_rows(rows)
    print_growth(rows)


if __name__ == "__main__":
    main()
