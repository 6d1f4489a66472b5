"""From a module to the computation that stands for its HLO."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch_neuronx.tracing import core_form, listing

_MODEL_PREFIX = "model."


@dataclass(frozen=True)
class TensorInfo:
    """Shape and dtype, fixed when traced."""

    shape: list[int]
    dtype: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorInfo:
        return cls(list(tensor.shape), str(tensor.dtype).removeprefix("torch."))


class HloModuleProto:
    """Stands for the protocol buffer of that name; its bytes say what is computed."""

    def __init__(self, content: dict[str, Any], program: torch.jit.ScriptModule) -> None:
        self._bytes = json.dumps(content, sort_keys=True).encode()
        self.program = program

    def SerializeToString(self, *, deterministic: bool = False) -> bytes:
        return self._bytes


@dataclass(frozen=True)
class MetaNeff:
    """What the tensors of a program are, beside it."""

    inputs: dict[str, TensorInfo]
    states: dict[str, TensorInfo]
    weights: dict[str, TensorInfo]
    num_results: int
    gives_one_tensor: bool


class _Function(torch.nn.Module):
    """A module as a function of its inputs and of the buffers that it replaces."""

    def __init__(self, model: torch.nn.Module, inputs: list[str], states: list[str]) -> None:
        super().__init__()
        self.model = model
        self.input_names = inputs
        self.state_names = states

    def forward(
        self, inputs: list[torch.Tensor], states: list[torch.Tensor]
    ) -> tuple[Any, list[torch.Tensor]]:
        own = dict(self.model.named_buffers())
        try:
            for name, state in zip(self.state_names, states, strict=True):
                set_buffer(self.model, name, state)
            result = self.model(**dict(zip(self.input_names, inputs, strict=True)))
            return result, [self.model.get_buffer(name) for name in self.state_names]
        finally:
            for name in self.state_names:
                set_buffer(self.model, name, own[name])


class _Flat(torch.nn.Module):
    """An exported graph over what it reads of inputs, states and weights; constants are its own."""

    def __init__(self, exported: torch.export.ExportedProgram) -> None:
        super().__init__()
        self.graph: Any = exported.graph_module
        self.places: list[tuple[str, int | str]] = []
        self.weights: list[str] = []
        users = {node.name: bool(node.users) for node in exported.graph.nodes}
        num_inputs = 0
        for spec in exported.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                self.places.append(("input", num_inputs))
                num_inputs += 1
            elif not users[spec.arg.name]:
                self.places.append(("input", 0))
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                assert spec.target is not None
                self.register_buffer(
                    f"constant_{len(self.places)}", exported.constants[spec.target]
                )
                self.places.append(("constant", f"constant_{len(self.places)}"))
            else:
                assert spec.target is not None
                self.places.append(("weight", len(self.weights)))
                self.weights.append(spec.target.removeprefix(_MODEL_PREFIX))
        self.num_inputs = num_inputs

    def forward(self, *tensors: torch.Tensor) -> Any:
        values = {
            "input": tensors[: self.num_inputs],
            "weight": tensors[self.num_inputs :],
        }
        return self.graph(
            *(
                getattr(self, place) if isinstance(place, str) else values[kind][place]
                for kind, place in self.places
            )
        )


def lower(
    model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]
) -> tuple[HloModuleProto, MetaNeff]:
    states = replaced_buffers(model, inputs)
    function = _Function(model, list(inputs), list(states))
    with torch.no_grad():
        exported = core_form(
            torch.export.export(
                function, (list(inputs.values()), list(states.values())), strict=False
            )
        )
    flat = _Flat(exported)
    weights = {name: _tensor_of(model, name) for name in flat.weights}
    example = (*inputs.values(), *states.values(), *weights.values())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.jit.trace(flat, example, check_trace=False)  # type: ignore[no-untyped-call]
        results, _ = function(list(inputs.values()), list(states.values()))
    is_one = isinstance(results, torch.Tensor)
    metaneff = MetaNeff(
        {name: TensorInfo.of(tensor) for name, tensor in inputs.items()},
        {name: TensorInfo.of(tensor) for name, tensor in states.items()},
        {name: TensorInfo.of(tensor) for name, tensor in weights.items()},
        1 if is_one else len(results),
        is_one,
    )
    nodes = [[n.op, str(n.target), str(n.args), str(n.kwargs)] for n in exported.graph.nodes]
    content = {**listing(exported), "nodes": nodes, "aliases": list(states)}
    return HloModuleProto(content, program), metaneff


def replaced_buffers(
    model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the buffers that a call replaces, as they were, and refuse any other change."""
    buffers, parameters = dict(model.named_buffers()), dict(model.named_parameters())
    tensors = {**buffers, **parameters}
    versions = {name: tensor._version for name, tensor in tensors.items()}
    try:
        with torch.no_grad():
            model(**inputs)
        after = dict(model.named_buffers())
        if any(p is not parameters.get(name) for name, p in model.named_parameters()):
            raise RuntimeError("a parameter is replaced: only buffers may be")
    finally:
        # trace, `preserve_parameters`: buffers stay what they are from bucket to bucket.
        for name, buffer in buffers.items():
            set_buffer(model, name, buffer)
    for name, tensor in tensors.items():
        # Usage Notes, "Supported Usage": in-place operations on buffers and parameters are not.
        if tensor._version != versions[name]:
            raise RuntimeError(f"{name} is written in place: replace the buffer out of place")
    replaced = {name: b for name, b in buffers.items() if after[name] is not b}
    for name, buffer in replaced.items():
        # Usage Notes: neither the dtype nor the shape of a buffer may change.
        if TensorInfo.of(after[name]) != TensorInfo.of(buffer):
            raise RuntimeError(f"{name} is replaced by another shape or dtype")
    return replaced


def set_buffer(model: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    model.get_submodule(owner)._buffers[leaf] = tensor


def _tensor_of(model: torch.nn.Module, name: str) -> torch.Tensor:
    owner, _, leaf = name.rpartition(".")
    tensor: torch.Tensor = getattr(model.get_submodule(owner), leaf)
    return tensor.detach()
