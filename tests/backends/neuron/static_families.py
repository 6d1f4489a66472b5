"""Graphs of the families in the form that is judged: exported, in core operators."""

from __future__ import annotations

from functools import cache

import torch
from tiny_families import MAX_MODEL_LEN, PREFILL, graph_spec

from neuron_llm.backends.neuron.graph.export import (
    example_inputs,
    export_function,
    functional_graph,
    zero_kv_caches,
)
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket

DECODE = DecodeBucket(4, MAX_MODEL_LEN)
GREEDY_IN_SEGMENTS = NeuronTarget("trn2", 2, kv_segment_size_buckets=(24,), samples_greedily=True)
# What each alone has, of operators and of the dtypes that they are used with.
KINDS: tuple[tuple[str, Bucket], ...] = (
    # Tied embeddings, one kind of layer, the whole context: what all others have too.
    ("llama", DECODE),
    # Soft-capped scores (`tanh`) and layers in turn with and without a window, in segments.
    ("gemma2", PREFILL),
    # Sinks, experts with biases, which are clamped and chosen from bfloat16 scores, in segments.
    ("gpt-oss", PREFILL),
    # The same of a batch: the rows of experts and sinks are laid out otherwise.
    ("gpt-oss", DECODE),
    # A router in float32: the int64 positions of its search are those of another dtype.
    ("qwen3-moe", DECODE),
)


@cache
def exported_graph(family: str, bucket: Bucket) -> torch.export.ExportedProgram:
    """Return the graph of a family's bucket in bfloat16; it samples, a prefill in segments."""
    spec = graph_spec(family, bucket, "bfloat16")
    graph = functional_graph(spec, GREEDY_IN_SEGMENTS)
    return export_function(graph, (*example_inputs(spec), *zero_kv_caches(spec, graph.model)))
