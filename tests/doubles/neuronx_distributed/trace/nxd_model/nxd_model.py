from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch

from neuronx_distributed.trace.model_builder_utils import CompilationArtifacts, TraceArtifacts
from neuronx_distributed.trace.nxd_model.base_nxd_model import StateInitializer
from neuronx_distributed.trace.nxd_model.calls import Call, Reference
from neuronx_distributed.trace.nxd_model.submodel import Submodel, Weights
from neuronx_distributed.trace.program import MetaNeff, TensorInfo

_CONTENT_FILE = "nxd_model.json"


class NxDModel(torch.nn.Module):
    """Several programs over one set of weights and one set of states."""

    def __init__(
        self,
        world_size: int,
        start_rank: int | None = None,
        local_ranks_size: int | None = None,
        state_initializer: StateInitializer | None = None,
        layout_transformer: Any = None,
    ) -> None:
        super().__init__()
        if world_size != 1 or start_rank or local_ranks_size not in (None, 1):
            raise NotImplementedError("the double has one rank")
        if layout_transformer is not None:
            raise NotImplementedError("the double lays no weights out")
        # NxDModel, `start_rank`: the number of ranks must be given with it.
        assert (start_rank is None) == (local_ranks_size is None)
        self._submodels: dict[str, Submodel] = {}
        self._state_initializer = state_initializer
        self._weights: Weights | None = None
        self._states: Weights | None = None
        self._in_flight: list[Call] = []

    def add(
        self,
        key: str,
        trace_artifacts: TraceArtifacts,
        compilation_artifacts: CompilationArtifacts,
    ) -> Self:
        # add, `key`: a unique identifier.
        if key in self._submodels:
            raise ValueError(f"{key} is there already")
        if self._states is not None:
            raise RuntimeError("the model is on the device already")
        submodel = Submodel(
            trace_artifacts.hlo.program,
            trace_artifacts.hlo.SerializeToString(),
            trace_artifacts.metaneff,
            Path(compilation_artifacts.neff_filepath).read_bytes(),
        )
        # add: artifacts of trace() and of compile(). Nothing promises that others are noticed.
        submodel.require_own_neff(key)
        for other in self._submodels.values():
            other.require_same_tensors(submodel, key)
        self._submodels[key] = submodel
        return self

    def get_neff(self, key: str) -> bytes:
        return self._submodels[key].neff

    def get_metaneff(self, key: str) -> MetaNeff:
        return self._submodels[key].metaneff

    def get_hlo(self, key: str) -> bytes:
        return self._submodels[key].hlo

    def set_weights(self, sharded_checkpoint: list[dict[str, torch.Tensor]]) -> None:
        # set_weights, "Raises": ValueError if the model is on a device already.
        if self._states is not None:
            raise ValueError("the model is on the device already: replace_weights()")
        self._weights = self._checked(sharded_checkpoint)

    def to_neuron(self) -> None:
        if self._states is not None:
            raise RuntimeError("the model is on the device already")
        # Nothing says what weights are that were never set.
        if self._weights is None and self._tensors("weights"):
            raise RuntimeError("no weights: set_weights() first")
        states = self._tensors("states")
        # add, "Notes": without an initializer one is made of the states; they start at zero.
        initializer = self._state_initializer or StateInitializer(
            {name: info.shape for name, info in states.items()},
            {name: getattr(torch, info.dtype) for name, info in states.items()},
            1,
        )
        (self._states,) = initializer()

    def replace_weights(self, sharded_checkpoint: list[dict[str, torch.Tensor]]) -> None:
        if self._states is None:
            raise RuntimeError("the model is not on the device: set_weights()")
        self._weights = self._checked(sharded_checkpoint)

    def read_from_neuron_buffer(self, buffer_key: str, rank: int) -> torch.Tensor:
        return self._buffer(buffer_key, rank).clone()

    def write_to_neuron_buffer(self, tensor: torch.Tensor, buffer_key: str, rank: int) -> None:
        buffer = self._buffer(buffer_key, rank)
        # write_to_neuron_buffer, "Raises": KeyError where shapes do not match.
        if TensorInfo.of(buffer) != TensorInfo.of(tensor):
            raise KeyError(f"{buffer_key} has another shape or dtype")
        buffer.copy_(tensor)

    def forward(
        self,
        *args: Any,
        model_name: str | None = None,
        forward_mode: str = "default",
        **kwargs: Any,
    ) -> Any:
        # to_neuron: without it, forward raises a RuntimeError.
        if self._states is None:
            raise RuntimeError("the model is not on the device: to_neuron() first")
        if forward_mode not in ("default", "ranked", "async"):
            raise ValueError(f"no such mode: {forward_mode}")
        if forward_mode != "default":
            args = tuple(_of_rank(value) for value in args)
            kwargs = {name: _of_rank(value) for name, value in kwargs.items()}
        submodel = self._route(args, kwargs, model_name)
        call = Call(submodel, submodel.bound(args, kwargs), self._states, self._weights or {})
        self._in_flight.append(call)
        if forward_mode == "async":
            results = range(submodel.metaneff.num_results)
            return [[Reference(self._in_flight, call, index)] for index in results]
        outputs = call.wait(self._in_flight)
        if forward_mode == "ranked":
            return [[output] for output in outputs]
        return outputs[0] if submodel.metaneff.gives_one_tensor else tuple(outputs)

    def save(self, path_to_save: str, save_weights: bool = False) -> None:
        if save_weights:
            raise NotImplementedError("the double saves no weights")
        holder = torch.nn.Module()
        content = []
        for index, (key, submodel) in enumerate(self._submodels.items()):
            holder.add_module(f"program_{index}", submodel.program)
            text = {"neff": submodel.neff.decode(), "hlo": submodel.hlo.decode()}
            content.append({"key": key, **text, "metaneff": asdict(submodel.metaneff)})
        files = {_CONTENT_FILE: json.dumps(content)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.script(holder), path_to_save, _extra_files=files)

    @classmethod
    def load(
        cls,
        path_to_model: str,
        start_rank: int | None = None,
        local_ranks_size: int | None = None,
    ) -> NxDModel | torch.jit.ScriptModule:
        # load, "Raises": AssertionError if only one of the two is given.
        assert (start_rank is None) == (local_ranks_size is None)
        files = {_CONTENT_FILE: ""}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            holder: Any = torch.jit.load(  # type: ignore[no-untyped-call]
                path_to_model, map_location="cpu", _extra_files=files
            )
        # load, "Raises": ValueError for what save() did not write.
        if not files[_CONTENT_FILE]:
            raise ValueError("not saved by NxDModel.save()")
        model = cls(1, start_rank, local_ranks_size)
        for index, entry in enumerate(json.loads(files[_CONTENT_FILE])):
            model._submodels[entry["key"]] = Submodel(
                getattr(holder, f"program_{index}"),
                entry["hlo"].encode(),
                _metaneff(entry["metaneff"]),
                entry["neff"].encode(),
            )
        return model

    def _route(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], model_name: str | None
    ) -> Submodel:
        if model_name is not None:
            return self._submodels[model_name]
        fitting = [s for s in self._submodels.values() if s.fits(args, kwargs)]
        # forward, `model_name`: must be given where routing is ambiguous.
        if len(fitting) != 1:
            raise RuntimeError(f"{len(fitting)} models have these shapes: give model_name")
        return fitting[0]

    def _tensors(self, kind: str) -> dict[str, TensorInfo]:
        return {
            name: info
            for submodel in self._submodels.values()
            for name, info in getattr(submodel.metaneff, kind).items()
        }

    def _checked(self, checkpoint: list[dict[str, torch.Tensor]]) -> Weights:
        # set_weights, `sharded_checkpoint`: one state dict for each rank.
        if not isinstance(checkpoint, list) or len(checkpoint) != 1:
            raise TypeError("a list of one state dict for each of 1 ranks")
        needed, states = self._tensors("weights"), self._tensors("states")
        (weights,) = checkpoint
        if missing := needed.keys() - weights.keys():
            raise ValueError(f"weights are missing: {sorted(missing)}")
        for name, tensor in weights.items():
            # The example of buffers gives their zeros among the weights.
            if name in states and not tensor.any():
                continue
            if name not in needed or TensorInfo.of(tensor) != needed[name]:
                raise ValueError(f"{name} is no weight, or has another shape or dtype")
        return {name: weights[name].clone() for name in needed}

    def _buffer(self, buffer_key: str, rank: int) -> torch.Tensor:
        # read_from_neuron_buffer, "Raises": AssertionError before to_neuron(), KeyError.
        assert self._states is not None, "to_neuron() first"
        if rank != 0 or buffer_key not in self._states:
            raise KeyError(buffer_key)
        # Nothing says what is read beside a call that has not ended.
        if self._in_flight:
            raise RuntimeError("a call is not over: block on its outputs by cpu() first")
        return self._states[buffer_key]


def _of_rank(value: Any) -> torch.Tensor:
    # forward, `args` and `kwargs`: lists, as long as there are ranks, unless the mode is default.
    if not isinstance(value, list) or len(value) != 1:
        raise TypeError("an input is a list of one tensor for each rank in this mode")
    tensor: torch.Tensor = value[0]
    return tensor


def _metaneff(content: dict[str, Any]) -> MetaNeff:
    tensors = ("inputs", "states", "weights")
    infos: dict[str, Any] = {
        kind: {name: TensorInfo(**info) for name, info in content[kind].items()} for kind in tensors
    }
    return MetaNeff(**{**content, **infos})
