"""Build one bucket's graph into a shared object with AOTInductor.

Runs in a process of its own, one per graph (`build_pool.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from neuron_llm.backends.build.cache import GraphCache
from neuron_llm.backends.build.files import write_description
from neuron_llm.backends.build.key import exported_key
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
from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import GraphSpec, TensorSpec
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


def build_into_cache(
    spec: GraphSpec, config_key: str, cache_dir: Path, target: CpuTarget, library: Path | None
) -> None:
    """Export and compile a graph unless the cache has it; the cache then has it.

    Whoever holds the lock builds; others wait for it and find the result.

    Args:
        spec: the graph.
        config_key: its first-level key.
        cache_dir: root of the cache.
        target: what it is compiled for.
        library: the operator library of the target, if it has one.
    """
    cache = GraphCache(cache_dir)
    with cache.lock(config_key):
        if cache.find(config_key) is not None:
            return
        started = time.perf_counter()
        graph = export_graph(spec, custom_ops=target.custom_ops)
        options = inductor_options(spec.dtype, target)
        graph_key = exported_key(graph.exported, [options, graph_environment(target)])
        with cache.lock(graph_key):
            if cache.graph_directory(graph_key) is None:
                with cache.new_entry(graph_key) as directory:
                    if library is not None:
                        options |= operator_options(library)
                    _compile(graph.exported, options, cache, directory)
                    _describe(spec, graph, directory, time.perf_counter() - started)
        cache.link(config_key, graph_key)


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


def _describe(
    spec: GraphSpec,
    graph: CpuGraph,
    directory: Path,
    compile_seconds: float,
) -> None:
    tensors = model_constants(graph.exported)
    names = SharedObject(directory / GRAPH_FILE, spec.bucket.name).constant_names()
    constants = [
        constant_spec(name, fqn, tensors[fqn], graph.stacked) for name, fqn in sorted(names.items())
    ]
    own = {
        fqn: tensors[fqn].contiguous()
        for fqn in names.values()
        if not fqn.startswith(MODEL_PREFIX) and fqn not in graph.stacked
    }
    if own:
        save_file(own, directory / CONSTANTS_FILE)
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    write_description(
        directory,
        inputs=[TensorSpec(name, shape, "int32") for name, shape in shapes.items()],
        constants=constants,
        compile_seconds=compile_seconds,
    )
