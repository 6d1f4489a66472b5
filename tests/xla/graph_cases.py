"""The graphs that every family is lowered to; run as a program, it writes them into a directory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from families import FAMILIES
from lowered_graph import LoweredGraph, lower_graph
from tiny_families import MAX_MODEL_LEN, PREFILL, graph_spec

from neuron_llm.backends.neuron.graph.export import functional_graph
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket

DECODE = DecodeBucket(4, MAX_MODEL_LEN)
_LOGITS = NeuronTarget("trn2", 2)
_IN_SEGMENTS = NeuronTarget("trn2", 2, kv_segment_size_buckets=(12,))
_TOKENS = NeuronTarget("trn2", 2, samples_greedily=True)


@dataclass(frozen=True)
class GraphCase:
    """A bucket, and what its graph is compiled for."""

    bucket: Bucket
    target: NeuronTarget


CASES = {
    "prefill": GraphCase(PREFILL, _LOGITS),
    "prefill_in_segments": GraphCase(PREFILL, _IN_SEGMENTS),
    "decode": GraphCase(DECODE, _LOGITS),
    "prefill_sampled": GraphCase(PREFILL, _TOKENS),
    "decode_sampled": GraphCase(DECODE, _TOKENS),
}


def lower_case(family: str, case: GraphCase, dtype: str = "float32") -> LoweredGraph:
    """Lower a graph as `compile` builds it: without weights."""
    spec = graph_spec(family, case.bucket, dtype)
    return lower_graph(functional_graph(spec, case.target), spec)


def main(directory: Path) -> None:
    """Write every graph of every family to `directory/family/case`."""
    for family in FAMILIES:
        for name, case in CASES.items():
            lower_case(family, case).save(directory / family / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
