"""Loaded CPU graphs over one memory-mapped copy of the weights and one KV cache."""

from __future__ import annotations

import math
import mmap
from pathlib import Path

import torch
from safetensors import safe_open

from neuron_llm.backends.cpu.graph_files import CONSTANTS_FILE, GRAPH_FILE
from neuron_llm.backends.cpu.operators.library import load_library
from neuron_llm.backends.cpu.shared_object import SharedObject
from neuron_llm.backends.inputs import GraphInputs, num_rows, torch_dtype
from neuron_llm.backends.protocol import ConstantSpec, GraphFiles, LoadJob
from neuron_llm.errors import ArtifactError
from neuron_llm.scheduler.buckets import Bucket


class CpuSession:
    """Every graph of an artifact, ready to run. No compiler is needed, nothing is unpacked.

    Args:
        job: what to load.

    Raises:
        ArtifactError: a weight is missing or has another shape or dtype than a graph needs.
    """

    def __init__(self, job: LoadJob) -> None:
        for path in job.shared_files:
            load_library(path)  # Graphs that were linked with it find it by its name.
        shape = job.kv_cache
        cache_shape = (shape.num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
        dtype = torch_dtype(job.dtype)
        self.key_caches = [_lazy_zeros(cache_shape, dtype) for _ in range(shape.num_layers)]
        self.value_caches = [_lazy_zeros(cache_shape, dtype) for _ in range(shape.num_layers)]
        weights = _map_tensors(job.weights)
        for alias, stored in job.weight_aliases.items():
            if stored in weights:  # Otherwise the graph that needs it says so.
                weights[alias] = weights[stored]
        self._graphs = {graph.bucket: _load_graph(graph, weights) for graph in job.graphs}
        self._logits = {
            graph.bucket: torch.zeros((num_rows(graph.bucket), job.vocab_size), dtype=dtype)
            for graph in job.graphs
        }

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run the bucket's graph; it updates the KV cache in place. Other threads run meanwhile.

        Returns:
            logits `[num_seqs, vocab_size]` in the graph's dtype; the next call of the bucket
            overwrites them.
        """
        logits = self._logits[bucket]
        self._graphs[bucket].run([logits, *inputs.as_tuple(), *self.key_caches, *self.value_caches])
        return logits


def _lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros that take no memory before they are written: `torch.zeros` writes every page."""
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def _load_graph(graph: GraphFiles, weights: dict[str, torch.Tensor]) -> SharedObject:
    own_path = graph.directory / CONSTANTS_FILE
    tensors = {**weights, **_map_tensors(own_path)} if own_path.is_file() else weights
    shared_object = SharedObject(graph.directory / GRAPH_FILE, graph.bucket.name)
    shared_object.set_constants(
        {
            constant.name: _matching(constant, tensors, graph.bucket.name)
            for constant in graph.constants
        }
    )
    return shared_object


def _map_tensors(path: Path) -> dict[str, torch.Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _matching(
    constant: ConstantSpec, tensors: dict[str, torch.Tensor], graph_name: str
) -> torch.Tensor:
    tensor = tensors.get(constant.weight)
    needed = f"{constant.dtype} {list(constant.shape)}"
    if tensor is None:
        raise ArtifactError(
            f"graph `{graph_name}` needs the weight `{constant.weight}` ({needed}), "
            "which the artifact does not have",
            hint="compile the artifact again",
        )
    found = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    if found != needed:
        raise ArtifactError(
            f"weight `{constant.weight}` is {found}, but graph `{graph_name}` needs {needed}",
            hint="compile the artifact again",
        )
    return tensor
