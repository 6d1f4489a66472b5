"""Build one bucket's graph into a shared object with AOTInductor.

Runs in a process of its own, one per graph (`build/pool.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.entry import build_into_cache
from neuron_llm.backends.cpu.environment import graph_environment
from neuron_llm.backends.cpu.export import (
    MODEL_PREFIX,
    CpuGraph,
    constant_spec,
    export_graph,
    model_constants,
)
from neuron_llm.backends.cpu.operators.library import load_library
from neuron_llm.backends.cpu.operators.shims import shim_declarations
from neuron_llm.backends.cpu.shared_object import SharedObject
from neuron_llm.backends.cpu.target import CONSTANTS_FILE, GRAPH_FILE, CpuTarget, vector_options
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec
from neuron_llm.errors import CompileError

# Weights stay outside the shared object. The wrapper only calls kernels: optimising it takes half
# of the C++ compile time and changes no measurable step time.
INDUCTOR_OPTIONS: dict[str, Any] = {
    "aot_inductor.package_constants_in_so": False,
    # Else parameters of up to eight numbers become literals, and graphs are built without weights.
    "always_keep_tensor_constants": True,
    "aot_inductor.compile_wrapper_opt_level": "O0",
    "compile_threads": 1,
}
# In bfloat16, rounding where eager rounds keeps a row's result independent of its batch.
REDUCED_PRECISION_OPTIONS: dict[str, Any] = {"emulate_precision_casts": True}


def inductor_options(dtype: str, target: CpuTarget) -> dict[str, Any]:
    """Return the compiler options of a graph."""
    extra = {} if dtype == "float32" else REDUCED_PRECISION_OPTIONS
    return {**INDUCTOR_OPTIONS, **extra, **vector_options(target.isa_level)}


@dataclass(frozen=True)
class _AotGraph:
    """An exported graph on its way through AOTInductor; see `ExportedGraph`.

    Attributes:
        spec: the graph.
        target: what it is compiled for.
        library: the operator library of the target, if it has one.
        graph: its exported form.
        cache: where the compiler may work.
    """

    spec: GraphSpec
    target: CpuTarget
    library: Path | None
    graph: CpuGraph
    cache: GraphCache

    @property
    def exported(self) -> torch.export.ExportedProgram:
        """See `ExportedGraph.exported`."""
        return self.graph.exported

    @property
    def options(self) -> dict[str, Any]:
        """The compiler's, without those of the operators, which the environment stands for."""
        return inductor_options(self.spec.dtype, self.target)

    @property
    def flags(self) -> list[object]:
        """See `ExportedGraph.flags`."""
        return [self.options, graph_environment(self.target)]

    def compile(self, directory: Path, graph_key: str) -> list[ConstantSpec]:
        """See `ExportedGraph.compile`."""
        options = self.options
        if self.library is not None:
            options |= operator_options(self.library)
        _compile(self.exported, options, self.cache, directory)
        return _constants(self.graph, directory, self.spec.bucket.name)


def build_graph(
    spec: GraphSpec, config_key: str, cache: GraphCache, target: CpuTarget, library: Path | None
) -> None:
    """Export and compile a graph unless the cache has it; the cache then has it.

    Args:
        spec: the graph.
        config_key: its first-level key.
        cache: where it goes.
        target: what it is compiled for.
        library: the operator library of the target, if it has one.
    """

    def export() -> _AotGraph:
        graph = export_graph(spec, custom_ops=target.custom_ops)
        return _AotGraph(spec, target, library, graph, cache)

    build_into_cache(cache, spec, config_key, export)


def operator_options(library: Path) -> dict[str, Any]:
    """Return the compiler options with which a graph calls the operators of a library.

    The library is loaded, so that the graph that was linked with it finds it by its name.
    """
    load_library(library)
    os.environ["LIBRARY_PATH"] = str(library.parent.resolve())
    return {
        "aot_inductor.custom_ops_to_c_shims": shim_declarations(),
        "aot_inductor.custom_op_libs": [library.stem.removeprefix("lib")],
    }


def _compile(
    exported: torch.export.ExportedProgram,
    options: dict[str, Any],
    cache: GraphCache,
    directory: Path,
) -> None:
    torch.set_num_threads(1)
    # The compiler keeps its probes of the CPU here; what it wrote for this graph goes again.
    work_dir = cache.root / "inductor"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work_dir.resolve())
    with tempfile.TemporaryDirectory(dir=cache.root / "tmp") as scratch:
        package = Path(scratch) / "graph.pt2"
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(package), inductor_configs=options
            )
        with zipfile.ZipFile(package) as archive:
            _require_no_fallbacks(archive)
            (shared_object,) = (n for n in archive.namelist() if n.endswith(".wrapper.so"))
            with archive.open(shared_object) as source, (directory / GRAPH_FILE).open("wb") as out:
                shutil.copyfileobj(source, out)
    for leftover in work_dir.glob(f"*/{Path(shared_object).name}"):
        shutil.rmtree(leftover.parent, ignore_errors=True)


def _require_no_fallbacks(archive: zipfile.ZipFile) -> None:
    """Refuse a graph that calls operators through torch's runner: at run time there is none.

    Raises:
        CompileError: names the operators.
    """
    targets = {
        node["node"]["target"]
        for name in archive.namelist()
        if name.endswith(".wrapper.json")
        for node in json.loads(archive.read(name))["nodes"]
    }
    if targets:
        raise CompileError(
            "the graph needs operators that have no C interface: "
            + ", ".join(f"`{target}`" for target in sorted(targets)),
            hint="this model cannot be compiled for the CPU backend",
        )


def _constants(graph: CpuGraph, directory: Path, graph_name: str) -> list[ConstantSpec]:
    """Describe what a compiled graph reads, and store what of it is no weight of the model."""
    tensors = model_constants(graph.exported)
    names = SharedObject(directory / GRAPH_FILE, graph_name).constant_names()
    own = {
        fqn: tensors[fqn].contiguous()
        for fqn in names.values()
        if not fqn.startswith(MODEL_PREFIX) and fqn not in graph.stacked
    }
    if own:
        save_file(own, directory / CONSTANTS_FILE)
    return [
        constant_spec(name, fqn, tensors[fqn], graph.stacked) for name, fqn in sorted(names.items())
    ]
