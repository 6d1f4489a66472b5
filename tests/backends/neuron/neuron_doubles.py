"""AWS's packages and commands replaced by the doubles, for a test and for its processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from families import FAMILIES
from safetensors.torch import save_file
from tiny_families import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    NUM_BLOCKS,
    PREFILL,
    TARGET,
    build_model,
    graph_spec,
)

from neuron_llm.backends.attention import ATTENTION_NAME
from neuron_llm.backends.neuron.binding_table import GRAPH_FILE
from neuron_llm.backends.neuron.export import functional_graph, zero_kv_caches
from neuron_llm.backends.neuron.functional_graph import StatefulGraph
from neuron_llm.backends.neuron.torch_releases import save_script
from neuron_llm.backends.neuron.trace import trace_graph, weight_constants
from neuron_llm.backends.protocol import GraphFiles, KVCacheShape, LoadJob
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket

DOUBLES = Path(__file__).resolve().parents[2] / "doubles"
FAMILY = "llama"
BUCKETS: tuple[Bucket, ...] = (PREFILL, DecodeBucket(4, MAX_MODEL_LEN))


def use_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process find the doubles, and forget what it imported from elsewhere."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_neuronx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(DOUBLES))
    monkeypatch.setenv("PATH", f"{DOUBLES / 'bin'}{os.pathsep}{os.environ['PATH']}")


def environment_with_doubles() -> dict[str, str]:
    """Return the environment of a process that finds the doubles."""
    path = f"{DOUBLES / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(DOUBLES)}


def build_graphs(directory: Path, family: str = FAMILY) -> LoadJob:
    """Trace both graphs of a family and write its weights, as `compile` does."""
    graphs = []
    for bucket in BUCKETS:
        spec = graph_spec(family, bucket)
        graph = functional_graph(spec, TARGET)
        stateful = StatefulGraph(graph, zero_kv_caches(spec, graph.model))
        folder = directory / bucket.name
        folder.mkdir(parents=True)
        traced = trace_graph(stateful, spec, TARGET, directory / "work" / bucket.name)
        save_script(traced, folder / GRAPH_FILE)
        graphs.append(GraphFiles(bucket, folder, tuple(weight_constants(stateful))))
    model = build_model(family, ATTENTION_NAME)
    save_file(
        {name: p.detach().clone() for name, p in model.named_parameters(remove_duplicate=False)},
        directory / "weights.safetensors",
    )
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return LoadJob(
        graphs=tuple(graphs),
        weights=directory / "weights.safetensors",
        weight_aliases={},
        shared_files=(),
        kv_cache=KVCacheShape(
            config.num_hidden_layers, NUM_BLOCKS, BLOCK_SIZE, config.num_key_value_heads, head_dim
        ),
        vocab_size=FAMILIES[family]["vocab_size"],
        dtype=str(torch.float32).removeprefix("torch."),
    )
