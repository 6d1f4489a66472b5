"""A graph lowered to an HLO module: its bytes, and what each parameter of it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from xla_device import bindings, metrics, torch_xla, xla_builder

from neuron_llm.backends.graph.inputs import input_shapes
from neuron_llm.backends.graph.spec import GraphSpec
from neuron_llm.backends.neuron.graph.export import example_inputs, zero_kv_caches
from neuron_llm.backends.neuron.graph.functional_graph import FunctionalGraph

_NAME = "graph"
_HLO_FILE, _PARAMETERS_FILE, _CONSTANTS_FILE = "graph.hlo", "parameters.json", "constants.st"
_MODEL_PREFIX = "model."


class GraphCutError(Exception):
    """A module that is no single graph of its inputs and weights."""


@dataclass(frozen=True)
class LoweredGraph:
    """What a runtime needs, besides weights and inputs; it can be kept in files.

    Attributes:
        hlo: the serialised module.
        parameters: name of each parameter of the module, in the module's own order.
        constants: the parameters that neither a caller nor a checkpoint has.
    """

    hlo: bytes
    parameters: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]

    def text(self) -> str:
        """Return the module in readable form."""
        text: str = xla_builder.get_computation_hlo(self.computation())
        return text

    def computation(self) -> object:
        """Return the module as XLA takes it."""
        computation: object = xla_builder.computation_from_module_proto(_NAME, self.hlo)
        return computation

    def save(self, directory: Path) -> None:
        """Write the graph into a new directory."""
        directory.mkdir(parents=True)
        (directory / _HLO_FILE).write_bytes(self.hlo)
        (directory / _PARAMETERS_FILE).write_text(json.dumps(self.parameters))
        save_file(dict(self.constants), directory / _CONSTANTS_FILE)

    @classmethod
    def load(cls, directory: Path) -> LoweredGraph:
        """Read what `save` wrote."""
        parameters = json.loads((directory / _PARAMETERS_FILE).read_text())
        constants = load_file(directory / _CONSTANTS_FILE)
        return cls((directory / _HLO_FILE).read_bytes(), tuple(parameters), constants)


def lower_graph(graph: FunctionalGraph, spec: GraphSpec) -> LoweredGraph:
    """Lower a bucket's function; parameters are named as its inputs and as the checkpoint does."""
    caches = named_caches(zero_kv_caches(spec, graph.model))
    return lower(graph, {**named_inputs(spec), **caches})


def named_inputs(spec: GraphSpec) -> dict[str, torch.Tensor]:
    """Return index inputs of a graph's shapes under their names, in its order."""
    shapes = input_shapes(spec.bucket, max_model_len=spec.max_model_len, block_size=spec.block_size)
    return dict(zip(shapes, example_inputs(spec), strict=True))


def named_caches(caches: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return KV caches under the names of the parameters that they are."""
    return {f"kv_caches.{index}": cache for index, cache in enumerate(caches)}


def lower(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> LoweredGraph:
    """Lower a module that returns a tuple of tensors.

    Raises:
        GraphCutError: an operator has no XLA form, or reads what is neither input nor weight.
    """
    device = torch_xla.device()
    state = dict([*module.named_parameters(), *module.named_buffers()])
    on_device = {name: t.detach().to(device) for name, t in [*state.items(), *inputs.items()]}
    torch_xla.sync()
    metrics.clear_counters()
    with torch.no_grad():
        outputs = torch.func.functional_call(
            module,
            {name: on_device[name] for name in state},
            tuple(on_device[name] for name in inputs),
        )
    if cuts := [name for name in metrics.counter_names() if name.startswith("aten::")]:
        raise GraphCutError(f"no XLA form: {', '.join(sorted(cuts))}")
    context = bindings.lowering.LoweringContext(_NAME)
    context.build(list(outputs))
    numbers = {name: context.tensor_parameter_id(tensor) for name, tensor in on_device.items()}
    used = sorted((number, name) for name, number in numbers.items() if number >= 0)
    num_parameters = len(context.parameter_id_tensor_mapping())
    if [number for number, _ in used] != list(range(num_parameters)):
        raise GraphCutError(f"neither inputs nor weights: {num_parameters - len(used)}")
    constants = {name for name, _ in module.named_buffers()}
    return LoweredGraph(
        hlo=context.hlo(),
        parameters=tuple(_public_name(name) for _, name in used),
        constants={_public_name(n): state[n].clone() for _, n in used if n in constants},
    )


def _public_name(name: str) -> str:
    return name.removeprefix(_MODEL_PREFIX)
