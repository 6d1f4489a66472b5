"""From a module to a graph that is judged by the compiler."""

from __future__ import annotations

import json
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind


def exported_graph(
    func: torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> torch.export.ExportedProgram:
    # Trace API: fixed shapes and fixed control flow; what depends on data fails to export.
    with torch.no_grad():
        return torch.export.export(func, inputs, strict=False)


def pure_core_form(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a graph in core operators, which writes nothing in place."""
    core = core_form(exported)
    # Trace API, `input_output_aliases`: a state changes by being an output. Nothing promises that
    # a state that is written in place is seen.
    for spec in core.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise RuntimeError(f"{spec.target} is written in place; return it as an output")
    return core


def aliased_names(
    func: torch.nn.Module,
    exported: torch.export.ExportedProgram,
    aliases: Mapping[torch.Tensor, int],
) -> dict[str, int]:
    """Return the name of each state and the output that replaces it."""
    names = {id(t): n for n, t in [*func.named_parameters(), *func.named_buffers()]}
    outputs = _outputs(exported)
    found: dict[str, int] = {}
    for tensor, index in aliases.items():
        # Trace API, `input_output_aliases`: keys are parameters or buffers, values output indices.
        if id(tensor) not in names:
            raise ValueError("an alias is no parameter or buffer of the module")
        if not 0 <= index < len(outputs) or index in found.values():
            raise ValueError(f"output {index} is not there, or aliased already")
        name, output = names[id(tensor)], outputs[index]
        if output.shape != tensor.shape or output.dtype != tensor.dtype:
            raise ValueError(
                f"state {name} is {tensor.dtype} {list(tensor.shape)}, but output {index} is "
                f"{output.dtype} {list(output.shape)}"
            )
        found[name] = index
    return found


def compile_graph(
    core: torch.export.ExportedProgram, work_dir: str | None, arguments: list[str]
) -> None:
    """Hand the graph to the neuronx-cc on PATH."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(work_dir or scratch)
        directory.mkdir(parents=True, exist_ok=True)
        graph = directory / "graph.hlo"
        graph.write_text(json.dumps(listing(core)))
        run_compiler(graph, directory / "graph.neff", directory / "log-neuron-cc.txt", arguments)


def run_compiler(graph: Path, output: Path, log: Path, arguments: list[str]) -> None:
    """Run the neuronx-cc on PATH."""
    result = subprocess.run(
        [
            *("neuronx-cc", "compile", str(graph), "--framework", "XLA", *arguments),
            *("--output", str(output), "--logfile", str(log)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    # neuronx-cc CLI: exit code 0 is success, anything else an error.
    if result.returncode:
        raise RuntimeError(f"neuronx-cc failed with {result.returncode}: {result.stderr}")


def core_form(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        core: torch.export.ExportedProgram = exported.run_decompositions()
    return core


def _outputs(exported: torch.export.ExportedProgram) -> list[torch.Tensor]:
    nodes = {node.name: node for node in exported.graph.nodes}
    return [
        nodes[spec.arg.name].meta["val"]
        for spec in exported.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT
    ]


def listing(core: torch.export.ExportedProgram) -> dict[str, Any]:
    """Return what a graph in core operators consists of."""
    kinds = {s.arg.name: s.kind for s in core.graph_signature.input_specs if s.arg.name}
    parameters, instructions = [], []
    for node in core.graph.nodes:
        for tensor in _tensors(node.meta.get("val")):
            entry = {
                "op": str(node.target),
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": [s if isinstance(s, int) else str(s) for s in tensor.shape],
                "readers": [str(user.target) for user in node.users],
            }
            if node.op == "placeholder":
                parameters.append({**entry, "kind": kinds.get(node.name, InputKind.TOKEN).name})
            elif node.op == "call_function":
                instructions.append(entry)
    return {"parameters": parameters, "instructions": instructions}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in _tensors(item)] if isinstance(value, tuple | list) else []
