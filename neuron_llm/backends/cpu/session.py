"""Loaded CPU graphs over one memory-mapped copy of the weights and one KV cache."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch._C._aoti import AOTIModelContainerRunnerCpu

from neuron_llm.backends.cpu.graph_files import CONSTANTS_FILE, GRAPH_FILE
from neuron_llm.backends.inputs import GraphInputs, torch_dtype
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
        shape = job.kv_cache
        cache_shape = (shape.num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
        dtype = torch_dtype(job.dtype)
        self.key_caches = [torch.zeros(cache_shape, dtype=dtype) for _ in range(shape.num_layers)]
        self.value_caches = [torch.zeros_like(cache) for cache in self.key_caches]
        # The graphs read the mapped file in place, so the tensors must live as long as they do.
        self._weights = _map_tensors(job.weights)
        for alias, stored in job.weight_aliases.items():
            self._weights[alias] = self._weights[stored]
        self._own_constants: list[dict[str, torch.Tensor]] = []
        self._graphs = {graph.bucket: self._load_graph(graph) for graph in job.graphs}

    def execute(self, bucket: Bucket, inputs: GraphInputs) -> torch.Tensor:
        """Run the bucket's graph; it updates the KV cache in place.

        Returns:
            logits `[num_seqs, vocab_size]` in the graph's dtype.
        """
        graph = self._graphs[bucket]
        outputs = graph.run([*inputs.as_tuple(), *self.key_caches, *self.value_caches])
        logits: torch.Tensor = outputs[0]
        return logits

    def _load_graph(self, graph: GraphFiles) -> AOTIModelContainerRunnerCpu:
        own_path = graph.directory / CONSTANTS_FILE
        own = _map_tensors(own_path) if own_path.is_file() else {}
        self._own_constants.append(own)
        tensors = {
            constant.name: _matching(constant, {**self._weights, **own}, graph.bucket.name)
            for constant in graph.constants
        }
        runner = AOTIModelContainerRunnerCpu(str(graph.directory / GRAPH_FILE), 1)
        runner.update_constant_buffer(tensors, False, True, True)
        return runner


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
