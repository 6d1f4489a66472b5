"""Put compiled graphs together to one model that has their weights and their KV state once.

Runs in a process of its own, on any host with the packages: no device is touched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.neuron.graph.binding_table import GRAPH_FILE, read_binding_table
from neuron_llm.backends.neuron.graph.export import functional_graph, zero_kv_caches
from neuron_llm.backends.neuron.graph.torch_releases import torchscript
from neuron_llm.backends.neuron.model_builder.model_builder import (
    HLO_NAME,
    hlo_sha256,
    trace_bucket,
)
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.neuron.trace.buffered_graph import BufferedGraph
from neuron_llm.errors import CompileError


def put_together(
    specs: Sequence[GraphSpec], directories: Sequence[Path], target: NeuronTarget, path: Path
) -> None:
    """Trace every bucket again, give each its compiled program, and write the model.

    Args:
        specs: every graph.
        directories: where each graph's compiled files lie.
        target: what they were compiled for.
        path: the model that is written; it holds no weights.

    Raises:
        CompileError: tracing a bucket gave something else than what was compiled.
    """
    from neuronx_distributed import NxDModel
    from neuronx_distributed.trace.model_builder_utils import CompilationArtifacts

    model = NxDModel(world_size=1)
    for spec, directory in zip(specs, directories, strict=True):
        name = spec.bucket.name
        graph = functional_graph(spec, target)
        artifacts = trace_bucket(BufferedGraph(graph, zero_kv_caches(spec, graph.model)), spec)
        if hlo_sha256(artifacts) != read_binding_table(directory).hlo_sha256[HLO_NAME]:
            raise CompileError(
                f"graph `{name}` was compiled of another HLO than tracing it gives now",
                hint=f"remove `{directory}` and compile again",
            )
        model.add(
            key=name,
            trace_artifacts=artifacts,
            compilation_artifacts=CompilationArtifacts(neff_filepath=str(directory / GRAPH_FILE)),
        )
    with torchscript():
        model.save(str(path), save_weights=False)


def put_together_or_tell(
    specs: Sequence[GraphSpec],
    directories: Sequence[Path],
    target: NeuronTarget,
    path: Path,
    fault_file: Path,
) -> None:
    """Do the same, and write what is to be told to the user where the caller finds it.

    Trying once more would not help, so that the process ends as if all were well.
    """
    try:
        put_together(specs, directories, target, path)
    except CompileError as error:
        fault_file.write_text(json.dumps({"message": error.message, "hint": error.hint}))
