"""A traced graph as a TorchScript module: it owns its weights and states, and checks its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

_NOT_MOVED = -1

# Trace API: "inputs and outputs are CPU tensors"; shapes and dtypes are those of the example.
_CHECK = """\
    if x{i}.device.type != "cpu":
        raise RuntimeError("a traced module takes CPU tensors")
    if x{i}.dtype != {dtype}:
        raise RuntimeError("an input has another dtype than the example")
    if list(x{i}.shape) != {shape}:
        raise RuntimeError("an input has another shape than the example")
"""
# Trace API, `inline_weights_to_neff`: weights stay on the host, and are carried over at every call,
# unless the trace is moved to the device first. It works on a device, and is a mistake.
_FORWARD = """\
def forward(self, {arguments}):
{checks}
    if not self.weights_are_inlined and int(self.device_id.item()) < 0:
        raise RuntimeError("the weights are on the host: move_trace_to_device() first")
    return self.inner({arguments})
"""
_STATE_NAMES = """\
def state_names(self) -> List[str]:
    return {names}
"""


class _Program(torch.nn.Module):
    """The computation, and the states that its aliased outputs replace."""

    def __init__(
        self,
        func: torch.nn.Module,
        exported: torch.export.ExportedProgram,
        aliases: Mapping[str, int],
    ) -> None:
        super().__init__()
        self.program: Any = exported.module(check_guards=False)
        # States and weights belong to the traced module: the function's own stay what they are.
        for name, parameter in func.named_parameters():
            self.program.get_parameter(name).data = parameter.detach().clone()
        self.aliases = dict(aliases)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = self.program(*inputs)
        for name, index in self.aliases.items():
            self.program.get_parameter(name).copy_(outputs[index])
        # Whether aliased outputs are returned too is not documented: here they are not.
        kept = [o for i, o in enumerate(outputs) if i not in self.aliases.values()]
        return tuple(kept)


class _Traced(torch.nn.Module):
    """What is called and saved.

    The T5 tutorial reaches the states through `parameters()`. Weights are among them, since
    nothing says that they are not.
    """

    def __init__(self, inner: torch.jit.ScriptModule, inline: bool) -> None:
        super().__init__()
        self.inner = inner
        self.weights_are_inlined = inline
        self.register_buffer("device_id", torch.tensor(_NOT_MOVED, dtype=torch.int32))


def script(
    func: torch.nn.Module,
    exported: torch.export.ExportedProgram,
    inputs: tuple[torch.Tensor, ...],
    aliases: Mapping[str, int],
    inline: bool,
) -> torch.jit.ScriptModule:
    program = _Program(func, exported, aliases)
    before = {name: program.program.get_parameter(name).clone() for name in aliases}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        inner = torch.jit.trace(program, inputs, check_trace=False)  # type: ignore[no-untyped-call]
        # Tracing ran it once.
        for name, state in before.items():
            program.program.get_parameter(name).copy_(state)
        traced: torch.jit.ScriptModule = torch.jit.script(_Traced(inner, inline))
        checks = [
            _CHECK.format(i=i, dtype=tensor.dtype, shape=list(tensor.shape))
            for i, tensor in enumerate(inputs)
        ]
        arguments = ", ".join(f"x{i}" for i in range(len(inputs)))
        traced.define(_FORWARD.format(arguments=arguments, checks="".join(checks)))
        names = ", ".join(f'"{name}"' for name in aliases)
        traced.define(_STATE_NAMES.format(names=f"[{names}]"))
    return traced


def on_device(trace: Any) -> torch.Tensor:
    # Placement API: its functions take what trace() returned, or what torch.jit.load() gives back.
    if not isinstance(trace, torch.jit.ScriptModule) or not hasattr(trace, "device_id"):
        raise TypeError("not a module that torch_neuronx traced")
    device_id: torch.Tensor = trace.device_id
    return device_id
