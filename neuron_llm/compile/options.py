"""How a plan is compiled, as opposed to what: where to, with what, and how carefully."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from neuron_llm.artifact.arguments import check_counts, make_paths
from neuron_llm.artifact.latest import ARTIFACTS_DIR
from neuron_llm.backends.neuron.target import NeuronTarget
from neuron_llm.backends.registry import get_backend
from neuron_llm.errors import NeuronLLMError

if TYPE_CHECKING:
    from neuron_llm.backends.protocol import Backend

    # The command line takes a default from here, and a plan takes long to import.
    from neuron_llm.compile.plan.plan import CompilePlan, NeuronPlan


def default_cache_dir() -> Path:
    """Return the compile cache of this user, below `XDG_CACHE_HOME` where that is set."""
    # The specification says to ignore a relative path.
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache_home if cache_home.is_absolute() else Path.home() / ".cache") / "neuron-llm"


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """How to compile, as opposed to what.

    Attributes:
        artifacts_dir: the artifact becomes `artifacts_dir/<configuration name>`.
        cache_dir: root of the compile cache.
        num_jobs: graphs that are built at the same time; one for each CPU if nothing is said.
        force: replace an artifact of another configuration.
        isa_level: instructions that graphs may use, see `CpuTarget.choose`; None is this CPU's.
        custom_ops: see `CpuTarget`.
        verify: whether every graph is held to the eager model before the artifact is shipped.
        timeout_s: seconds after which building one graph is given up; None for no limit.
        extend: replace an artifact that is the same save that it lacks graphs.
    """

    artifacts_dir: Path = ARTIFACTS_DIR
    cache_dir: Path = field(default_factory=default_cache_dir)
    num_jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    force: bool = False
    isa_level: str | None = None
    custom_ops: bool = True
    verify: bool = True
    timeout_s: float | None = None
    extend: bool = False

    def __post_init__(self) -> None:
        """Take texts for paths, and refuse numbers with which nothing would ever be built.

        Raises:
            NeuronLLMError: names the attribute.
        """
        make_paths(self)
        check_counts(self, "num_jobs")
        limit = self.timeout_s
        if limit is not None and not (isinstance(limit, int | float) and limit > 0):
            raise NeuronLLMError(f"`timeout_s` is {limit!r}, not a number over 0")

    def backend(self, plan: CompilePlan) -> Backend:
        """Return the backend that compiles a plan.

        Raises:
            ArtifactError: it is not installed here.
            CompileError: this CPU does not have the instruction set level.
        """
        return get_backend(
            plan.backend,
            isa_level=self.isa_level,
            custom_ops=self.custom_ops,
            neuron_target=None if plan.neuron is None else neuron_target(plan.neuron),
        )


def neuron_target(plan: NeuronPlan) -> NeuronTarget:
    """Return what the Neuron backend compiles a plan for."""
    return NeuronTarget(
        target=plan.target,
        logical_nc_config=plan.logical_nc_config,
        kv_segment_size_buckets=plan.kv_segment_size_buckets,
        compiler_args=plan.compiler_args,
        binding=plan.binding,
        samples_greedily=plan.on_device_sampling is not None,
    )
