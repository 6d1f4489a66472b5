"""The CPU operator library against torch's own operators, side by side in turns.

    python bench/operators.py [--threads 2] [--rounds 15] [--seconds 0.02] [--level LEVEL]
                              [--only WORD] [--layers 24] [--best] [--cpu-time]

What is compared is described in `attention_cases.py` and `linear_cases.py`.

Each figure is the median of `--rounds` rounds; in a round every contender of a case runs for
`--seconds`, in turns. `--best` takes the best round instead, and `--cpu-time`, with one thread,
leaves out the time of others that use the machine. `ratio` is torch's time divided by ours; GB/s
counts keys and values, or weights, read; GFLOP/s the products of unmasked scores and values, or of
the layer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import torch
from attention_cases import attention_cases
from linear_cases import linear_cases
from operator_case import Case

from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import IsaLevel, widest_level
from neuron_llm.backends.cpu.operators.library import build_library, load_library
from neuron_llm.backends.cpu.operators.registration import use_library


def seconds_per_call(
    call: Callable[[], torch.Tensor], seconds: float, clock: Callable[[], float]
) -> float:
    """Return the mean time of a call, repeated for about `seconds`."""
    num_calls, started = 0, clock()
    while (elapsed := clock() - started) < seconds or num_calls == 0:
        call()
        num_calls += 1
    return elapsed / num_calls


def measure(
    case: Case, arguments: argparse.Namespace, clock: Callable[[], float]
) -> tuple[float, float]:
    """Return our time and that of torch's best way, in seconds."""
    contenders = (case.ours, *case.theirs)
    times = [
        [seconds_per_call(contender, arguments.seconds, clock) for contender in contenders]
        for _ in range(arguments.rounds + 1)
    ]
    summary = min if arguments.best else statistics.median
    ours, *theirs = (summary(column) for column in zip(*times[1:], strict=True))
    return ours, min(theirs)


def main() -> None:
    """Measure every case and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--level", type=IsaLevel, default=widest_level(cpu_features()))
    parser.add_argument("--best", action="store_true", help="print the best round")
    parser.add_argument("--cpu-time", action="store_true", help="measure CPU time, not the clock")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    print(f"{arguments.level}, {arguments.threads} threads, torch {torch.__version__}")
    print(f"{'case':45}{'ours us':>10}{'torch us':>10}{'ratio':>7}{'GB/s':>7}{'GFLOP/s':>9}")
    with tempfile.TemporaryDirectory() as directory:
        use_library(load_library(build_library(arguments.level, Path(directory))))
        for name, make in chain(attention_cases(arguments.layers), linear_cases()):
            if arguments.only not in name:
                continue
            case = make()
            ours, theirs = measure(case, arguments, clock)
            print(
                f"{name.rpartition(' ')[0] + ' ' + case.name:45}{ours * 1e6:10.0f}"
                f"{theirs * 1e6:10.0f}{theirs / ours:7.2f}{case.num_bytes / ours / 1e9:7.1f}"
                f"{case.num_flops / ours / 1e9:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
