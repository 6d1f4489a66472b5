"""Print what loading an artifact and running every graph once adds to this process's memory.

A script: only a fresh process's growth means anything. Prints one JSON object, bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil

import neuron_llm.backends.cpu.session  # noqa: F401  imports do not count as growth
from neuron_llm.artifact.artifact import Artifact
from neuron_llm.backends.graph.inputs import GraphInputs, StepTokens, decode_inputs, prefill_inputs
from neuron_llm.runtime.text.tokenizer import Tokenizer
from neuron_llm.scheduler import Bucket, PrefillBucket


def full_inputs(bucket: Bucket, artifact: Artifact) -> GraphInputs:
    """Return inputs that fill a bucket: every row, and every slot of a prefill."""
    settings = artifact.manifest.settings
    size = settings.block_size
    if isinstance(bucket, PrefillBucket):
        blocks = list(range(1, 2 + bucket.num_tokens // size))
        chunk = StepTokens([5] * bucket.num_tokens, 0, blocks)
        return prefill_inputs(bucket, chunk, max_model_len=settings.max_model_len, block_size=size)
    rows = [StepTokens([5], 0, [1 + i]) for i in range(bucket.batch_size)]
    return decode_inputs(bucket, rows, block_size=size)


def main(directory: Path) -> None:
    """Measure and print."""
    artifact = Artifact.open(directory)
    Tokenizer.load(artifact.tokenizer_dir)
    process = psutil.Process()
    before = process.memory_info().rss
    session = artifact.load()
    after_load = process.memory_info().rss
    for cache in (*session.key_caches, *session.value_caches):
        cache.fill_(0)  # Every page of the KV cache counts, touched by a request or not.
    for bucket in artifact.manifest.buckets.all:
        session.execute(bucket, full_inputs(bucket, artifact))
    kv_cache_bytes = sum(c.nbytes for c in (*session.key_caches, *session.value_caches))
    report = {
        "num_graphs": len(artifact.manifest.graphs),
        "weights_bytes": artifact.manifest.weights.file.size_bytes,
        "kv_cache_bytes": kv_cache_bytes,
        "growth_after_load_bytes": after_load - before,
        "growth_bytes": process.memory_info().rss - before,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
