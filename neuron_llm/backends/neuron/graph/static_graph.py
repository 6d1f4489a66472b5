"""The proof that a graph is static: what it consists of, judged before any compiler sees it.

Shapes are numbers; operators are of a list (`allowed_operators.py`), none of which depends on data;
nothing is float64; integers are int32, save for the positions that a search returns, which are
converted at once; and nothing is written in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import getitem

import torch
from torch.export.graph_signature import OutputKind

from neuron_llm.backends.neuron.graph.allowed_operators import (
    ALLOWED_OPERATORS,
    INT64_READERS,
    INT64_RESULTS,
)
from neuron_llm.errors import CompileError

_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def require_static(exported: torch.export.ExportedProgram, graph_name: str) -> None:
    """Pass a graph that the device can run.

    Raises:
        CompileError: names the operators and dtypes that stand in the way.
    """
    faults = static_faults(exported)
    if faults:
        raise CompileError(
            f"graph `{graph_name}` cannot be compiled for a Neuron device: {'; '.join(faults)}",
            hint="this model needs what the device does not have; run it on `backend: cpu`",
        )


def static_faults(exported: torch.export.ExportedProgram) -> list[str]:
    """Return what keeps an exported graph from being static, each kind of fault once."""
    faults = [
        f"`{spec.target}` is written in place"
        for spec in exported.graph_signature.output_specs
        if spec.kind in _MUTATIONS or spec.kind.name == "PARAMETER_MUTATION"
    ]
    for node in exported.graph.nodes:
        faults += _node_faults(node)
    return list(dict.fromkeys(faults))


def operators(exported: torch.export.ExportedProgram) -> set[str]:
    """Return the names of the operators of a graph, such as `aten.mm.default`."""
    return {_name(node) for node in exported.graph.nodes if node.op == "call_function"} - {
        getitem.__name__
    }


def _node_faults(node: torch.fx.Node) -> Iterator[str]:
    name = _name(node)
    if node.op == "call_function" and node.target is not getitem:
        if name not in ALLOWED_OPERATORS:
            yield f"it contains the operator `{name}`"
            return
    elif node.op not in ("placeholder", "output", "call_function"):
        yield f"it contains a `{node.op}`"
    for tensor in _tensors(node.meta.get("val")):
        if any(not isinstance(size, int) for size in tensor.shape):
            yield f"`{name}` has a shape that is not static: {list(tensor.shape)}"
        if tensor.dtype in (torch.float64, torch.complex64, torch.complex128):
            yield f"`{name}` is {tensor.dtype}"
        if tensor.dtype == torch.int64 and not _is_search_result(node):
            yield f"`{name}` is int64"


def _is_search_result(node: torch.fx.Node) -> bool:
    """Whether an int64 tensor is what a search returned, and is only read to be converted."""
    source = node
    while source.target is getitem and isinstance(source.args[0], torch.fx.Node):
        source = source.args[0]
    readers = [user for user in node.users if user.target is not getitem]
    return _name(source) in INT64_RESULTS and all(_name(u) in INT64_READERS for u in readers)


def _name(node: torch.fx.Node) -> str:
    if node.op != "call_function":
        return node.name
    return getitem.__name__ if node.target is getitem else str(node.target)


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from _tensors(item)
