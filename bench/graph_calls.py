"""One call of a compiled graph against eager Hugging Face, in turns, on the CPU.

    python bench/graph_calls.py MODEL [--dtype bfloat16] [--rounds 30]

Timed are the graph call alone, and the model's `forward` over a key-value cache of the same length:
no sampling, no scheduler, no tokenizer on either side. Contenders take turns in every round; each
figure is the median of the rounds. MODEL is a Hugging Face directory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.backends.graph.inputs import StepTokens, decode_inputs, prefill_inputs
from neuron_llm.backends.protocol import BuildEvent, Session
from neuron_llm.compile.compiler import compile_artifact
from neuron_llm.compile.config.file import load_config
from neuron_llm.compile.options import CompileOptions, default_cache_dir
from neuron_llm.compile.plan.plan import plan_compile
from neuron_llm.scheduler import DecodeBucket, PrefillBucket

CONTEXT, PREFILL, BLOCK_SIZE, MAX_MODEL_LEN = 256, 128, 32, 1024
BATCH_SIZES = (1, 4, 8)
CONFIG = f"""\
model: {{model}}
dtype: {{dtype}}
max_model_len: {MAX_MODEL_LEN}
max_num_seqs: {BATCH_SIZES[-1]}
max_num_batched_tokens: {PREFILL}
block_size: {BLOCK_SIZE}
neuron_config:
  num_batched_tokens_buckets: [{PREFILL}]
  num_seqs_buckets: {list(BATCH_SIZES)}
"""
Call = Callable[[], object]


def compiled(model: Path, dtype: str, directory: Path) -> Session:
    """Compile the graphs unless they are in the cache, and load them."""
    config = directory / "bench.yaml"
    config.write_text(CONFIG.format(model=model.resolve(), dtype=dtype))
    loaded = load_config(config)
    assert loaded.model_spec is not None
    options = CompileOptions(
        artifacts_dir=directory / "artifacts",
        cache_dir=default_cache_dir(),
        num_jobs=os.cpu_count() or 1,
        force=False,
        verify=False,
    )
    result = compile_artifact(loaded, plan_compile(loaded, loaded.model_spec), options, show)
    return Artifact.open(result.artifact).load()


def show(event: BuildEvent) -> None:
    """Tell about a graph that is built."""
    print(f"{event.status} {event.graph}")


def graph_calls(session: Session) -> dict[str, Call]:
    """Return a call of every graph, every row of it in use."""
    chunk = StepTokens([7] * PREFILL, 0, range(1, PREFILL // BLOCK_SIZE + 1))
    prefill = PrefillBucket(PREFILL)
    inputs = prefill_inputs(prefill, chunk, max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE)
    calls: dict[str, Call] = {f"prefill {PREFILL}": lambda: session.execute(prefill, inputs)}
    blocks = CONTEXT // BLOCK_SIZE
    for size in BATCH_SIZES:
        rows = [
            StepTokens([7], CONTEXT - 1, range(1 + row * blocks, 1 + (row + 1) * blocks))
            for row in range(size)
        ]
        bucket = DecodeBucket(size, MAX_MODEL_LEN)
        decode = decode_inputs(bucket, rows, block_size=BLOCK_SIZE)
        calls[f"decode {size} at {CONTEXT}"] = partial(session.execute, bucket, decode)
    return calls


def eager_calls(model: torch.nn.Module) -> dict[str, Call]:
    """Return the same work for the eager model."""
    prompt = torch.full((1, PREFILL), 7)
    calls: dict[str, Call] = {
        f"prefill {PREFILL}": lambda: model(input_ids=prompt, use_cache=True, logits_to_keep=1)
    }
    for size in BATCH_SIZES:
        cache = DynamicCache()
        model(input_ids=torch.full((size, CONTEXT - 1), 7), cache=cache, logits_to_keep=1)

        def decode(cache: DynamicCache = cache, size: int = size) -> None:
            model(input_ids=torch.full((size, 1), 7), cache=cache, logits_to_keep=1)
            cache.crop(-1)

        calls[f"decode {size} at {CONTEXT}"] = decode
    return calls


@torch.inference_mode()
def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ours = graph_calls(compiled(arguments.model, arguments.dtype, Path(directory)))
        dtype = getattr(torch, arguments.dtype)
        model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=dtype).eval()
        theirs = eager_calls(model)
        print(f"\n{torch.get_num_threads()} threads, {arguments.dtype}, milliseconds per call")
        print(f"{'':18}{'graph':>9}{'eager':>9}{'times faster':>14}")
        for name in ours:
            times: list[list[float]] = [[], []]
            for _ in range(arguments.rounds + 2):
                for contender, call in zip(times, (ours[name], theirs[name]), strict=True):
                    started = time.perf_counter()
                    call()
                    contender.append((time.perf_counter() - started) * 1e3)
            graph, eager = (statistics.median(contender[2:]) for contender in times)
            print(f"{name:18}{graph:9.2f}{eager:9.2f}{eager / graph:14.2f}")


if __name__ == "__main__":
    main()
