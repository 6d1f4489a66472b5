"""What scheduling a step ahead hides: `Engine` and `AsyncEngine` side by side, in turns.

Usage: python bench/async_overlap.py [--rounds 5] [--threads 1 2] [--batches 1 8]
                                      [--tokens 48] [--device-ms T] [--artifact DIR]

With `--device-ms T` no graph runs: the engines wait for T milliseconds instead, as for a device
that leaves the CPU to the host, and everything else is done as always.

Without `--artifact` it compiles models/smollm2-135m-instruct, or, where that is missing, a tiny
random model. For each number of threads that graphs may use, a process loads both engines and gives
them the same greedy requests by turns. Loading, compiling and the first round are not timed.

    steps/s, tokens/s   graph runs and output tokens per second of wall time, median of the rounds
    graph, host         milliseconds per step in the graph and in the host's work for it
    gap                 milliseconds between the end of a graph and the start of the next
    hidden              share of the host's work that was done while a graph ran
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuron_llm.runtime.engine.engine import Engine
    from neuron_llm.runtime.watch.step_trace import StepTrace

ROOT = Path(__file__).resolve().parent.parent
SMOLLM2 = ROOT / "models" / "smollm2-135m-instruct"
CONFIG = """\
model: {model}
dtype: {dtype}
max_model_len: 512
max_num_seqs: 8
max_num_batched_tokens: 128
block_size: 32
neuron_config:
  num_batched_tokens_buckets: [128]
  num_seqs_buckets: [1, 8]
"""
HEADER = "threads  batch  engine  steps/s  tokens/s  graph ms  host ms  gap ms  hidden"


@dataclass(frozen=True)
class Round:
    """One batch of requests through one engine."""

    steps_per_s: float
    tokens_per_s: float
    graph_ms: float
    host_ms: float
    gap_ms: float
    hidden: float


def main() -> None:
    """Parse, compile what is needed, and run one process per number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=48, help="output tokens per request")
    parser.add_argument("--device-ms", type=float, help="wait so long instead of running graphs")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        measure(options)
        return
    with tempfile.TemporaryDirectory() as scratch:
        artifact = options.artifact or compile_default(Path(scratch))
        describe(artifact, options)
        print(HEADER, flush=True)
        for num_threads in dict.fromkeys(options.threads):
            given = [f"--artifact={artifact}", f"--threads={num_threads}"]
            subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--worker", *given],
                env={"GOMP_SPINCOUNT": "1000", **os.environ, "OMP_NUM_THREADS": str(num_threads)},
                check=True,
            )


def compile_default(scratch: Path) -> Path:
    """Compile the model that there is, from the user's compile cache where it can be."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    model, dtype = SMOLLM2, "bfloat16"
    if not model.is_dir():
        sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "runtime" / "text")]
        from tiny_models import LLAMA, save_model

        model, dtype = save_model(scratch / "tiny", LLAMA), "float32"
    from neuron_llm.compile.compiler import compile_artifact
    from neuron_llm.compile.config.file import load_config
    from neuron_llm.compile.options import CompileOptions, default_cache_dir
    from neuron_llm.compile.plan.plan import plan_compile

    config = scratch / f"{model.name}.yaml"
    config.write_text(CONFIG.format(model=model, dtype=dtype))
    loaded = load_config(config)
    assert loaded.model_spec is not None
    compiling = CompileOptions(
        artifacts_dir=scratch / "artifacts",
        cache_dir=default_cache_dir(),
        num_jobs=os.cpu_count() or 1,
        force=False,
    )
    plan = plan_compile(loaded, loaded.model_spec)
    return compile_artifact(loaded, plan, compiling, lambda _: None).artifact


def describe(artifact: Path, options: argparse.Namespace) -> None:
    """Print what is measured, and where."""
    import torch

    from neuron_llm.artifact.manifest import read_manifest

    manifest = read_manifest(artifact)
    buckets = ", ".join(graph.name for graph in manifest.graphs)
    print(f"model {artifact.name}, {manifest.settings.dtype}, graphs {buckets}")
    host = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"host {host}, torch {torch.__version__}")
    if options.device_ms:
        print(f"instead of each graph: {options.device_ms} ms that take no CPU")
    print(f"{options.rounds} rounds of batches of 16-token prompts, {options.tokens} tokens each\n")


def measure(options: argparse.Namespace) -> None:
    """Run both engines by turns and print a row for each."""
    from neuron_llm.artifact.artifact import Artifact
    from neuron_llm.runtime.engine.async_engine import AsyncEngine
    from neuron_llm.runtime.engine.engine import Engine
    from neuron_llm.runtime.sampling.sampling_params import SamplingParams
    from neuron_llm.runtime.watch.observer import NoObserver

    class Traces(NoObserver):
        """Keeps the steps of a round."""

        def __init__(self) -> None:
            self.steps: list[StepTrace] = []

        def on_step(self, trace: StepTrace) -> None:
            self.steps.append(trace)

    def run(engine: Engine, traces: Traces, batch_size: int) -> Round:
        params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=options.tokens)
        engine.scheduler.reset_prefix_cache()
        traces.steps.clear()
        started = time.perf_counter()
        for index in range(batch_size):
            prompt = [(7 * index + 3 * position) % 200 for position in range(16)]
            engine.add_request(f"r{index}", prompt, params)
        while engine.has_unfinished_requests():
            engine.step()
        return summary(traces.steps, batch_size * options.tokens, time.perf_counter() - started)

    artifact = Artifact.open(options.artifact)
    watched = {name: Traces() for name in ("sync", "async")}
    engines: dict[str, Engine] = {
        "sync": Engine(artifact, observer=watched["sync"]),
        "async": AsyncEngine(artifact, observer=watched["async"]),
    }
    if options.device_ms:
        for engine in engines.values():
            wait_instead_of_graphs(engine, options.device_ms / 1000)
    for batch_size in options.batches:
        rounds: dict[str, list[Round]] = {name: [] for name in engines}
        for index in range(options.rounds + 1):
            for name in sorted(engines, reverse=index % 2 == 0):
                result = run(engines[name], watched[name], batch_size)
                if index:
                    rounds[name].append(result)
        for name, results in rounds.items():
            print(row(options.threads[0], batch_size, name, results), flush=True)


def wait_instead_of_graphs(engine: Engine, seconds: float) -> None:
    """Replace the engine's graphs by a wait, as on a device that leaves the CPU to the host."""
    import torch

    logits = torch.zeros(engine.scheduler.max_num_seqs, engine.artifact.manifest.model.vocab_size)

    def execute(bucket: object, inputs: object) -> torch.Tensor:
        time.sleep(seconds)
        return logits

    engine.runner.session.execute = execute  # type: ignore[method-assign]


def summary(steps: Sequence[StepTrace], num_output_tokens: int, wall: float) -> Round:
    """Return the figures of one batch."""
    graphs = [(step.graph.started, step.graph.ended) for step in steps]
    host = [span for step in steps for span in step.host]
    host_s = sum(span.ended - span.started for span in host)
    hidden_s = sum(
        max(0.0, min(span.ended, ended) - max(span.started, started))
        for span in host
        for started, ended in graphs
    )
    gaps = [after[0] - before[1] for before, after in pairwise(graphs)]
    return Round(
        steps_per_s=len(steps) / wall,
        tokens_per_s=num_output_tokens / wall,
        graph_ms=1000 * sum(ended - started for started, ended in graphs) / len(steps),
        host_ms=1000 * host_s / len(steps),
        gap_ms=1000 * statistics.mean(gaps),
        hidden=hidden_s / host_s,
    )


def row(num_threads: int, batch_size: int, name: str, rounds: list[Round]) -> str:
    """Return the medians of the rounds as a line of the table."""

    def median(field: str) -> float:
        return float(statistics.median(getattr(result, field) for result in rounds))

    return (
        f"{num_threads:7}  {batch_size:5}  {name:6}  {median('steps_per_s'):7.1f}  "
        f"{median('tokens_per_s'):8.1f}  {median('graph_ms'):8.2f}  {median('host_ms'):7.2f}  "
        f"{median('gap_ms'):6.2f}  {median('hidden'):5.0%}"
    )


if __name__ == "__main__":
    main()
