"""Measure how long the workload's part of a bucket report takes.

    PYTHONPATH=. python bench/bucket_optimizer.py [TRACE ...]

Without a trace, the workload is the worst of its size: as many different lengths as requests. What
is counted is the process's own CPU time, so that a busy machine changes little; each figure is the
least of a few rounds.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from neuron_llm.report.advice.bucket_optimizer import BucketLimits, optimal_buckets
from neuron_llm.report.advice.chunk_size import candidate_chunk_sizes, compare_chunk_sizes
from neuron_llm.report.advice.held_out import score_held_out
from neuron_llm.report.advice.tradeoff_curve import tradeoff_curve
from neuron_llm.report.workload.prefix_hits import computed_after_hits
from neuron_llm.report.workload.trace import Trace, TraceRequest
from neuron_llm.report.workload.trace_reader import read_trace

MAX_GRAPHS = 8
CURVE_GRAPHS = 16
BLOCK_SIZE = 16


def worst_trace(num_requests: int, longest: int) -> Trace:
    """Return requests of which no two are equally long."""
    lengths = random.Random(0).sample(range(1, longest + 1), num_requests)
    requests = (TraceRequest(0.0, length, 1, (), line) for line, length in enumerate(lengths, 1))
    return Trace("made up", tuple(requests), (), None, 0)


def seconds(work: Callable[[], object], num_rounds: int) -> float:
    """Return the least CPU time of a few rounds."""
    times = []
    for _ in range(num_rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def jobs_of(trace: Trace) -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    lengths = trace.prompt_lengths
    in_order = [request.prompt_tokens for request in trace.requests]
    limits = BucketLimits(lengths.longest, MAX_GRAPHS)
    candidates = candidate_chunk_sizes(lengths, current=512, max_model_len=lengths.longest)
    return {
        f"{MAX_GRAPHS} buckets": lambda: optimal_buckets(lengths, limits),
        f"curve of {CURVE_GRAPHS}": lambda: tradeoff_curve(
            lengths, BucketLimits(lengths.longest, CURVE_GRAPHS)
        ),
        f"{len(candidates)} chunk sizes": lambda: compare_chunk_sizes(
            lengths, candidates, max_graphs=MAX_GRAPHS
        ),
        "held out": lambda: score_held_out(in_order, limits),
        "prefix hits": lambda: computed_after_hits(trace, block_size=BLOCK_SIZE),
    }


def print_figures(name: str, trace: Trace, num_rounds: int) -> None:
    """Print a trace's size, and a line for each of its jobs."""
    lengths = trace.prompt_lengths
    num_distinct = len(lengths.counts)
    print(f"{name}: {lengths.num_lengths} requests, {num_distinct} lengths up to {lengths.longest}")
    for job, work in jobs_of(trace).items():
        print(f"  {job:<16} {seconds(work, num_rounds) * 1e3:>8.1f} ms")


def main() -> None:
    """Measure the given traces, or the made-up one."""
    parser = argparse.ArgumentParser(description="Time of the workload's part of a bucket report.")
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--longest", type=int, default=131_072)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if not args.traces:
        print_figures("worst", worst_trace(args.requests, args.longest), args.rounds)
    for path in args.traces:
        read = seconds(partial(read_trace, path), args.rounds)
        print_figures(path.name, read_trace(path), args.rounds)
        print(f"  {'reading':<16} {read * 1e3:>8.1f} ms")


if __name__ == "__main__":
    main()
