"""A double of torch_neuronx: its documented interface, strictly, computing on the host.

Written from AWS's documentation, whose pages the comments name; nothing in it comes from the
package. It refuses whatever those pages do not promise, so that code that passes here asks for no
more. It says nothing about what the compiler accepts, about the device's numerics or its speed.

Pages:
    Trace API: "PyTorch Neuron (torch-neuronx) Tracing API for Inference".
    Placement API: "PyTorch Neuron (torch-neuronx) Core Placement".
    Weights API: "PyTorch Neuron (torch-neuronx) Weight Replacement API for Inference".
    T5 tutorial: "T5 model inference on Trn1 or Inf2".
    Data types: "Data Types" of the Neuron features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch_neuronx.program import on_device, script
from torch_neuronx.tracing import (
    aliased_names,
    compile_graph,
    exported_graph,
    pure_core_form,
)

__version__ = "2.9.0.2.15.32035+double"


def trace(
    func: Any,
    example_inputs: Any,
    *_: Any,
    input_output_aliases: Mapping[torch.Tensor, int] = {},
    compiler_workdir: str | None = None,
    compiler_args: str | list[str] | None = None,
    partitioner_config: Any = None,
    inline_weights_to_neff: bool = True,
    cpu_backend: bool = False,
) -> torch.jit.ScriptModule:
    # Trace API, signature: what follows the example inputs is given by keyword.
    if _:
        raise TypeError("options of trace() are keyword-only")
    if not isinstance(func, torch.nn.Module):
        raise TypeError("the double traces modules only")
    if partitioner_config is not None:
        raise NotImplementedError("the double does not partition")
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    # Trace API, `example_inputs`: tensors; a traced module "consumes and produces CPU tensors".
    for tensor in inputs:
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
            raise TypeError("example inputs are CPU tensors")
    arguments = compiler_args.split() if isinstance(compiler_args, str) else compiler_args or []
    # Trace API, `compiler_args`: a string or a list of strings.
    if not all(isinstance(argument, str) for argument in arguments):
        raise TypeError("compiler arguments are strings")
    # Trace API, `cpu_backend`: needs a target, since there is no device to ask.
    if cpu_backend and not any(a.split("=")[0] == "--target" for a in arguments):
        raise ValueError("cpu_backend=True needs --target in compiler_args")
    if not cpu_backend:
        raise RuntimeError("the double has no device to compile on; use cpu_backend=True")
    exported = exported_graph(func, inputs)
    core = pure_core_form(exported)
    aliases = aliased_names(func, exported, input_output_aliases)
    compile_graph(core, compiler_workdir, arguments)
    return script(func, exported, inputs, aliases, inline_weights_to_neff)


def move_trace_to_device(trace: Any, device_id: int) -> None:
    # Placement API: takes a traced module and the index of a core.
    if not isinstance(device_id, int) or isinstance(device_id, bool) or device_id < 0:
        raise ValueError(f"device_id is the index of a core, not {device_id!r}")
    on_device(trace).fill_(device_id)


def replace_weights(neuron_model: Any, weights: torch.nn.Module | Mapping[str, Any]) -> None:
    # Weights API: a module, or a dictionary of names and tensors such as a state dict.
    state = weights.state_dict() if isinstance(weights, torch.nn.Module) else weights
    on_device(neuron_model)
    # Weights API: "only works if the model was traced with `inline_weights_to_neff=False`".
    if bool(neuron_model.weights_are_inlined):
        raise RuntimeError("the weights are part of the program: trace with inline False")
    own = dict(neuron_model.inner.program.named_parameters(remove_duplicate=False))
    states = set(neuron_model.state_names())
    for name, tensor in state.items():
        if name not in own or name in states:
            raise ValueError(f"{name} is no weight of this model")
        # Trace API: shapes and dtypes are fixed when traced.
        if own[name].shape != tensor.shape or own[name].dtype != tensor.dtype:
            raise ValueError(f"{name} has another shape or dtype than when traced")
        own[name].detach().copy_(tensor)
