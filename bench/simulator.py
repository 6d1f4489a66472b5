"""Measure how long a what-if simulation takes, and the decode graphs found from it.

    PYTHONPATH=. python bench/simulator.py [TRACE ...]

Without a trace, requests are made up: on average five a second, prompts of 1,200 tokens and outputs
of 220. Steps take the roofline's times of a model of 8 billion parameters. What is counted is the
process's own CPU time, so that a busy machine changes little.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from pathlib import Path

from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.report.advice.decode_buckets import DecodeBucketLimits, recommend_decode_buckets
from neuron_llm.report.simulate.candidate import Candidate
from neuron_llm.report.simulate.simulator import simulate
from neuron_llm.report.step_time.roofline import (
    ROOFLINE_TARGETS,
    RooflineStepTimes,
    roofline_device,
)
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.report.workload.trace_reader import read_trace
from neuron_llm.report.workload.workload import Workload, median_output_tokens
from neuron_llm.scheduler import (
    BucketSet,
    DecodeBucket,
    PrefillBucket,
    SchedulerConfig,
    get_default_num_batched_tokens_buckets,
    get_default_num_seqs_buckets,
)
from neuron_llm.scheduler.block_pool import ceil_div, num_blocks_for

BLOCK_SIZE = 32
MAX_NUM_BATCHED_TOKENS = 2048
MAX_GRAPHS = 8

MODEL = ModelSpec(
    model_type="llama",
    architectures=("LlamaForCausalLM",),
    num_layers=32,
    hidden_size=4096,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    intermediate_size=14336,
    tie_word_embeddings=False,
    max_position_embeddings=131072,
    dtype="bfloat16",
    sliding_window=None,
    eos_token_ids=(),
    num_parameters=8_030_261_248,
    has_exact_num_parameters=True,
)


def made_up_trace(num_requests: int) -> Trace:
    """Return requests that come at random, with lengths that differ as those of chats do."""
    rng = random.Random(0)
    requests, arrival_s = [], 0.0
    for line in range(1, num_requests + 1):
        prompt_tokens = min(max(round(rng.lognormvariate(6.6, 1.0)), 1), 16_000)
        output_tokens = min(max(round(rng.lognormvariate(5.0, 0.9)), 1), 2_000)
        requests.append(TraceRequest(arrival_s, prompt_tokens, output_tokens, (), line))
        arrival_s += rng.expovariate(5)
    return Trace("made up", tuple(requests), (), None, 0)


def make_candidate(max_num_seqs: int, max_model_len: int) -> Candidate:
    """Return the default buckets, with room for a quarter of the longest requests together."""
    blocks_per_seq = num_blocks_for(max_model_len, BLOCK_SIZE)
    budget = min(MAX_NUM_BATCHED_TOKENS, max_model_len)
    prefill = tuple(get_default_num_batched_tokens_buckets(budget))
    config = SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=max_model_len,
        block_size=BLOCK_SIZE,
        num_blocks=max(max_num_seqs // 4, 1) * blocks_per_seq + 1,
        num_batched_tokens_buckets=prefill,
    )
    seqs = get_default_num_seqs_buckets(max_num_seqs)
    buckets = BucketSet(
        prefill=tuple(PrefillBucket(size) for size in prefill),
        decode=tuple(DecodeBucket(rows, max_model_len) for rows in seqs),
    )
    return Candidate(f"{max_num_seqs} requests", config, buckets)


def print_figures(name: str, trace: Trace, targets: list[str], max_num_seqs: list[int]) -> None:
    """Print what each simulation of a trace was of, and the CPU time that it took."""
    longest = max(r.prompt_tokens + (r.output_tokens or 0) for r in trace.requests)
    max_model_len = max(ceil_div(longest + 1, 1024) * 1024, 4096)
    workload = Workload(trace, median_output_tokens(trace))
    print(f"{name}: {len(trace.requests)} requests, max_model_len {max_model_len}")
    heads = ("target", "seqs", "tokens out", "steps", "simulated s", "CPU s", "us/step", "graphs s")
    print(" ".join(f"{head:>12}" for head in heads))
    for target in targets:
        times = RooflineStepTimes(
            MODEL,
            "bfloat16",
            roofline_device(target),
            max_model_len=max_model_len,
            live_context_tokens=workload.mean_context_tokens,
        )
        for num_seqs in max_num_seqs:
            start = time.process_time()
            result = simulate(workload, make_candidate(num_seqs, max_model_len), times)
            simulated = time.process_time()
            limits = DecodeBucketLimits(num_seqs, max_model_len, MAX_GRAPHS)
            recommend_decode_buckets(result.occupancy, limits, times)
            cpu, graphs_cpu = simulated - start, time.process_time() - simulated
            cells = f"{target:>12} {num_seqs:>12} {result.metrics.num_output_tokens:>12}"
            cells += f" {result.num_steps:>12} {result.duration_s:>12.0f} {cpu:>12.2f}"
            print(f"{cells} {cpu * 1e6 / result.num_steps:>12.1f} {graphs_cpu:>12.2f}")


def main() -> None:
    """Measure the given traces, or the made-up one."""
    parser = argparse.ArgumentParser(description="Time of a what-if simulation.")
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--requests", type=int, default=10_000, help="the first so many")
    parser.add_argument("--targets", nargs="+", default=["trn2"], choices=ROOFLINE_TARGETS)
    parser.add_argument("--max-num-seqs", type=int, nargs="+", default=[16, 64, 256])
    args = parser.parse_args()
    if not args.traces:
        trace = made_up_trace(args.requests)
        print_figures("made up", trace, args.targets, args.max_num_seqs)
    for path in args.traces:
        trace = read_trace(path)
        trace = replace(trace, requests=trace.requests[: args.requests])
        print_figures(path.name, trace, args.targets, args.max_num_seqs)


if __name__ == "__main__":
    main()
