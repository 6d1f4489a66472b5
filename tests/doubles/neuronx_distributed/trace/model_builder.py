from __future__ import annotations

import hashlib
import inspect
import shlex
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import torch
from torch_neuronx.tracing import run_compiler

from neuronx_distributed.trace.model_builder_utils import (
    CompilationArtifacts,
    ModelParamInfo,
    ProvidedArgInfo,
    TraceArtifacts,
)
from neuronx_distributed.trace.nxd_model.nxd_model import NxDModel
from neuronx_distributed.trace.program import HloModuleProto, MetaNeff, lower

# compile, "Default Compiler Flags".
_DEFAULT_FLAGS = "--enable-saturate-infinity --auto-cast=none --model-type=transformer -O1"


def trace(
    model: Any,
    args: torch.Tensor | tuple[torch.Tensor, ...] | None = None,
    kwargs: Mapping[str, torch.Tensor] | None = None,
    spmd: bool = True,
    preserve_parameters: bool = True,
) -> TraceArtifacts:
    # trace, `spmd`: only True is supported.
    if spmd is not True:
        raise ValueError("spmd can only be True")
    if not preserve_parameters:
        raise NotImplementedError("the double keeps buffers from bucket to bucket")
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("the double traces modules only")
    parameters = _parameters(model)
    inputs = _inputs(parameters, args, kwargs or {})
    hlo, metaneff = lower(model, inputs)
    names = list(inputs)
    return TraceArtifacts(
        hlo=hlo,
        metaneff=metaneff,
        flattener=lambda given: [given[name] for name in names],
        packer=lambda outputs: outputs[0] if metaneff.gives_one_tensor else tuple(outputs),
        weight_name_to_idx={name: index for index, name in enumerate(metaneff.weights)},
        weight_names_to_skip=set(),
        provided_args=[ProvidedArgInfo(n, parameters[n], t) for n, t in inputs.items()],
        model_params=[ModelParamInfo(n, required) for n, required in parameters.items()],
    )


def compile(  # noqa: A001
    hlo_module: Any,
    metaneff: Any,
    compiler_workdir: str | Path | None = None,
    compiler_args: str | None = None,
    key: str | None = None,
) -> CompilationArtifacts:
    if not isinstance(hlo_module, HloModuleProto) or not isinstance(metaneff, MetaNeff):
        raise TypeError("compile() takes the HLO and the metaneff that trace() made")
    # compile, `compiler_args`: one text.
    if compiler_args is not None and not isinstance(compiler_args, str):
        raise TypeError("compiler_args is a text")
    content = hlo_module.SerializeToString()
    key = key or hashlib.sha256(content).hexdigest()[:16]
    # compile, "Directory Structure".
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
    directory = Path(compiler_workdir or tempfile.mkdtemp()) / key / stamp
    (directory / "model").mkdir(parents=True)
    graph = directory / "model" / "graph.hlo"
    graph.write_bytes(content)
    (directory / "metaneff.pb").write_text(repr(metaneff))
    arguments = shlex.split(_DEFAULT_FLAGS if compiler_args is None else compiler_args)
    (directory / "command.txt").write_text(shlex.join(arguments))
    neff = directory / "graph.neff"
    run_compiler(graph, neff, directory / "log-neuron-cc.txt", arguments)
    return CompilationArtifacts(neff_filepath=str(neff))


class ModelBuilder:
    def __init__(self, model: Any) -> None:
        self._model = model
        self._traced: dict[str, TraceArtifacts] = {}

    def trace(
        self,
        args: torch.Tensor | tuple[torch.Tensor, ...] | None = None,
        kwargs: Mapping[str, torch.Tensor] | None = None,
        tag: str | None = None,
        spmd: bool = True,
    ) -> Self:
        artifacts = trace(self._model, args, kwargs, spmd)
        tag = tag or hashlib.sha256(artifacts.hlo.SerializeToString()).hexdigest()[:16]
        # ModelBuilder.trace, `tag`: a unique identifier.
        if tag in self._traced:
            raise ValueError(f"{tag} is traced already")
        self._traced[tag] = artifacts
        return self

    def compile(
        self,
        priority_model_key: str | None = None,
        compiler_workdir: str | Path | None = None,
        compiler_args: str | Mapping[str, str] | None = None,
        max_workers: int | None = None,
    ) -> NxDModel:
        if priority_model_key is not None:
            raise NotImplementedError("the double lays no weights out")
        model = NxDModel(world_size=1)
        for tag, traced in self._traced.items():
            given = compiler_args.get(tag) if isinstance(compiler_args, Mapping) else compiler_args
            compiled = compile(traced.hlo, traced.metaneff, compiler_workdir, given, tag)
            model.add(tag, traced, compiled)
        return model


def _parameters(model: torch.nn.Module) -> dict[str, bool]:
    """Return the names of what `forward` takes, and whether each must be given."""
    parameters = inspect.signature(model.forward).parameters.values()
    # trace, `model`: explicit parameters, neither *args nor **kwargs, and at least one.
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise ValueError("a model with *args or **kwargs cannot be traced")
    if not parameters:
        raise ValueError("a model without a parameter cannot be traced")
    return {p.name: p.default is p.empty for p in parameters}


def _inputs(
    parameters: Mapping[str, bool],
    args: torch.Tensor | tuple[torch.Tensor, ...] | None,
    kwargs: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    if len(positional) > len(parameters):
        raise ValueError("more inputs than the model has parameters")
    inputs = dict(zip(parameters, positional, strict=False))
    for name, tensor in kwargs.items():
        # trace, `kwargs`: names of parameters, and none that `args` has.
        if name not in parameters or name in inputs:
            raise ValueError(f"{name} is no parameter, or given twice")
        inputs[name] = tensor
    missing = [n for n, is_required in parameters.items() if is_required and n not in inputs]
    if missing:
        raise ValueError(f"inputs are missing: {missing}")
    for name, tensor in inputs.items():
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
            raise TypeError(f"{name} is no CPU tensor")
    return inputs
