"""AWS's packages and commands replaced by the doubles, for a test and for its processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from families import FAMILIES
from repository import ROOT
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

from neuron_llm.backends.build.files import write_description
from neuron_llm.backends.graph.attention import ATTENTION_NAME
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.neuron.graph.export import traceable_graph
from neuron_llm.backends.neuron.graph_build import compile_graph
from neuron_llm.backends.neuron.model_builder.nxd_model import put_together
from neuron_llm.backends.neuron.target import MODEL_BUILDER, NeuronTarget
from neuron_llm.backends.protocol import GraphFiles, KVCacheShape, LoadRequest
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket

DOUBLES = ROOT / "tests" / "doubles"
FAMILY = "llama"
BUCKETS: tuple[Bucket, ...] = (PREFILL, DecodeBucket(4, MAX_MODEL_LEN))


def use_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process find the doubles, and forget what it imported from elsewhere."""
    packages = ("torch_neuronx", "neuronx_distributed")
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(DOUBLES))
    monkeypatch.setenv("PATH", f"{DOUBLES / 'bin'}{os.pathsep}{os.environ['PATH']}")


def environment_with_doubles() -> dict[str, str]:
    """Return the environment of a process that finds the doubles."""
    path = f"{DOUBLES / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(DOUBLES)}


def shallow_spec(bucket: Bucket) -> GraphSpec:
    """Return a graph of the family's first layer alone, enough for a mistake in every layer."""
    spec = graph_spec(FAMILY, bucket)
    return replace(spec, architecture={**spec.architecture, "num_hidden_layers": 1})


def build_graph(folder: Path, spec: GraphSpec, target: NeuronTarget) -> GraphFiles:
    """Compile one graph into a folder, which must be there."""
    work_dir = folder.parent / "work" / spec.bucket.name
    constants = compile_graph(folder, traceable_graph(spec, target), work_dir)
    write_description(folder, inputs=(), constants=constants, compile_seconds=0.0)
    return GraphFiles(spec.bucket, folder, tuple(constants))


def build_graphs(
    directory: Path, target: NeuronTarget = TARGET, buckets: Sequence[Bucket] = BUCKETS
) -> LoadRequest:
    """Compile the graphs of the family and write its weights, as `compile` does."""
    graphs, specs = [], [graph_spec(FAMILY, bucket) for bucket in buckets]
    for spec in specs:
        folder = directory / spec.bucket.name
        folder.mkdir(parents=True)
        graphs.append(build_graph(folder, spec, target))
    shared_files: tuple[Path, ...] = ()
    if target.binding == MODEL_BUILDER:
        shared_files = (directory / "model.pt",)
        put_together(specs, [graph.directory for graph in graphs], target, shared_files[0])
    model = build_model(FAMILY, ATTENTION_NAME)
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    save_file(
        {name: tensor.detach().clone() for name, tensor in tensors},
        directory / "weights.safetensors",
    )
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return LoadRequest(
        graphs=tuple(graphs),
        weights=directory / "weights.safetensors",
        weight_aliases={},
        shared_files=shared_files,
        kv_cache=KVCacheShape(
            config.num_hidden_layers, NUM_BLOCKS, BLOCK_SIZE, config.num_key_value_heads, head_dim
        ),
        vocab_size=FAMILIES[FAMILY]["vocab_size"],
        dtype=str(torch.float32).removeprefix("torch."),
        requirements={"binding": [target.binding]},
    )
