"""Measure how long a whole bucket report takes, from the shell's point of view.

    PYTHONPATH=. python bench/bucket_report.py CONFIG [TRACE ...]

Without a trace, one is made up of 30,000 rows, the prompts of which all have different lengths: the
worst of its size. Start, reading, every section and the pictures are counted, in the process's own
CPU time, so that a busy machine changes little; each figure is the least of a few rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path


def made_up_trace(path: Path, num_rows: int, longest: int) -> Path:
    """Write a trace of which no two prompts are equally long."""
    lengths = random.Random(0).sample(range(1, longest + 1), num_rows)
    rows = (f"{index / 5},{length},{1 + length % 400}" for index, length in enumerate(lengths))
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    return path


def cpu_seconds(config: Path, trace: Path, html: Path, num_rounds: int) -> float:
    """Return the least CPU time of a few reports."""
    command = [sys.executable, "-m", "neuron_llm.cli.main", "bucket-report", str(config)]
    times = []
    for _ in range(num_rounds):
        before = os.times()
        flags = ["--trace", str(trace), "--html", str(html), "-q"]
        subprocess.run([*command, *flags], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        used = (after.children_user, after.children_system)
        times.append(sum(used) - before.children_user - before.children_system)
    return min(times)


def main() -> None:
    """Measure the given traces, or the made-up one."""
    parser = argparse.ArgumentParser(description="CPU time of a whole bucket report.")
    parser.add_argument("config", type=Path)
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--longest", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        made_up = made_up_trace(directory / "made-up.csv", args.rows, args.longest)
        for trace in args.traces or [made_up]:
            seconds = cpu_seconds(args.config, trace, directory / "report.html", args.rounds)
            num_rows = len(trace.read_text().splitlines())
            print(f"{trace.name}: {num_rows} lines, {seconds:.2f} s")


if __name__ == "__main__":
    main()
