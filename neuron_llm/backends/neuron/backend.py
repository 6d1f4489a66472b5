"""The Neuron backend as the rest of the project sees it.

Imports torch and AWS's packages only when it builds or loads.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuron_llm.backends.build.builds import GraphBuilder, key_parts, requested_graphs
from neuron_llm.backends.build.cache import GraphCache, content_key
from neuron_llm.backends.graph.spec import ConstantSpec, GraphSpec
from neuron_llm.backends.neuron.devices import devices_here
from neuron_llm.backends.neuron.environment import (
    graph_environment,
    installed_version,
    library_versions,
    run_time_libraries,
)
from neuron_llm.backends.neuron.generations import runs_graphs_of
from neuron_llm.backends.neuron.graph.binding_table import GRAPH_FILE
from neuron_llm.backends.neuron.model_builder.shared_model import shared_model
from neuron_llm.backends.neuron.packages import (
    INSTALL_LINE,
    NEURONX_DISTRIBUTED,
    PACKAGE_INDEX,
    install_command,
)
from neuron_llm.backends.neuron.target import MODEL_BUILDER, NeuronTarget
from neuron_llm.backends.protocol import BuildRequest, BuiltGraph, LoadRequest, Session
from neuron_llm.errors import CompileError

if TYPE_CHECKING:
    import torch

_COMPILER = "neuronx-cc"


class NeuronBackend:
    """One program per graph; weights and KV state once per graph on the device, or once for all.

    Args:
        target: what graphs are compiled for; None to run what was compiled before.
    """

    name = "neuron"
    graph_file = GRAPH_FILE

    def __init__(self, target: NeuronTarget | None) -> None:
        self._target = target

    @property
    def target(self) -> NeuronTarget:
        """What graphs are compiled for."""
        assert self._target is not None, "only a compile has a target"
        return self._target

    def cached_graphs(self, specs: Sequence[GraphSpec], cache_dir: Path) -> list[bool]:
        """See `Backend.cached_graphs`."""
        cache = GraphCache(cache_dir)
        return [cache.find(self._config_key(spec)) is not None for spec in specs]

    def compile_graphs(self, request: BuildRequest) -> list[BuiltGraph]:
        """See `Backend.compile_graphs`."""
        keys = [self._config_key(spec) for spec in request.specs]
        return requested_graphs(
            request,
            keys,
            GraphBuilder(
                build=_build,
                target=self.target,
                preload="neuron_llm.backends.neuron.graph_build",
                prepare=_require_compiler,
            ),
        )

    def shared_files(self, request: BuildRequest, built: Sequence[BuiltGraph]) -> list[Path]:
        """See `Backend.shared_files`: the model that the graphs are put together to, if any."""
        is_shared = self.target.binding == MODEL_BUILDER
        return [shared_model(request, built, self.target)] if is_shared else []

    def lay_out(self, constant: ConstantSpec, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """See `Backend.lay_out`: as the checkpoint has it."""
        (tensor,) = tensors
        return tensor

    def load(self, request: LoadRequest) -> Session:
        """See `Backend.load`."""
        if MODEL_BUILDER in request.requirements.get("binding", ()):
            from neuron_llm.backends.neuron.model_builder.model_builder_session import (
                ModelBuilderSession,
            )

            return ModelBuilderSession(request)
        from neuron_llm.backends.neuron.trace.trace_session import TraceSession

        return TraceSession(request)

    def versions(self) -> dict[str, str]:
        """See `Backend.versions`."""
        return library_versions(self.target.binding)

    def requirements(self) -> dict[str, list[str]]:
        """See `Backend.requirements`: the device, how its cores are joined, and the binding."""
        return {
            "target": [self.target.target],
            "logical_nc_config": [str(self.target.logical_nc_config)],
            "binding": [self.target.binding],
        }

    def diagnose(
        self, versions: Mapping[str, str], requirements: Mapping[str, Sequence[str]]
    ) -> list[str]:
        """See `Backend.diagnose`: other packages, no device, or cores that are joined otherwise."""
        reasons = []
        (binding,) = requirements.get("binding", ("trace",))
        for name in run_time_libraries(binding):
            here = installed_version(name)
            if versions.get(name) != here:
                reasons.append(
                    f"compiled with {name} {versions.get(name)}, but {_found(name, versions, here)}"
                )
        machine = devices_here()
        if not machine.are_there:
            reasons.append("this machine has no Neuron device")
        for target in requirements.get("target", ()):
            if not all(runs_graphs_of(device, target) for device in machine.targets):
                shown = " and ".join(f"`{device}`" for device in sorted(machine.targets))
                reasons.append(f"compiled for `{target}`, but the devices here are {shown}")
        joined = {str(value) for value in machine.logical_nc_configs}
        wanted = set(requirements.get("logical_nc_config", ()))
        if joined and wanted and joined != wanted:
            reasons.append(
                f"compiled for logical cores of {'/'.join(wanted)} physical ones, but "
                f"they are of {'/'.join(sorted(joined))} here (`NEURON_LOGICAL_NC_CONFIG`)"
            )
        return reasons

    def _config_key(self, spec: GraphSpec) -> str:
        """Return the first-level cache key of a graph: from its specification and target alone."""
        return content_key(
            {
                "backend": self.name,
                **key_parts(spec),
                "segment_tokens": self.target.segment_tokens(spec.bucket),
                "samples_greedily": self.target.samples_greedily,
                "compiler_arguments": self.target.compiler_arguments(),
                "binding": self.target.binding,
                "environment": graph_environment(self.target.binding),
            }
        )


def _build(spec: GraphSpec, key: str, cache_dir: Path, target: NeuronTarget) -> None:
    from neuron_llm.backends.neuron.graph_build import build_graph

    build_graph(spec, key, GraphCache(cache_dir), target)


def _found(name: str, versions: Mapping[str, str], here: str | None) -> str:
    if here is not None:
        return f"{name} here is {here}"
    if name != NEURONX_DISTRIBUTED:
        return f"{name} is not installed here"
    pin = f"{name}=={versions.get(name)}"
    command = f"python -m pip install --extra-index-url {PACKAGE_INDEX} {pin}"
    return f"{name} is not installed here: `{command}`"


def _require_compiler() -> None:
    if shutil.which(_COMPILER) is None:
        raise CompileError(
            f"no compiler: `{_COMPILER}` is not on PATH",
            hint=f"install it, any host will do: `{install_command(*INSTALL_LINE)}`",
        )
