"""Which backend a name means. Each is imported only when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuron_llm.backends.protocol import Backend
from neuron_llm.errors import ArtifactError

if TYPE_CHECKING:
    from neuron_llm.backends.neuron.target import NeuronTarget


def get_backend(
    name: str,
    *,
    isa_level: str | None = None,
    custom_ops: bool = True,
    neuron_target: NeuronTarget | None = None,
) -> Backend:
    """Return a backend by its configuration name. There is no fallback from one to another.

    Args:
        name: `cpu` or `neuron`.
        isa_level: see `CpuTarget.choose`; concerns compiling for the CPU only.
        custom_ops: see `CpuTarget`; concerns compiling for the CPU only.
        neuron_target: concerns compiling for Neuron only, which needs it.

    Raises:
        ArtifactError: the backend does not run here; the hint installs what is missing.
        CompileError: this CPU does not have the level.
    """
    if name == "cpu":
        from neuron_llm.backends.cpu.backend import CpuBackend
        from neuron_llm.backends.cpu.target import CpuTarget

        return CpuBackend(CpuTarget.choose(isa_level, custom_ops=custom_ops))
    if name == "neuron":
        from neuron_llm.backends.neuron.backend import NeuronBackend
        from neuron_llm.backends.neuron.packages import require_packages

        require_packages("trace" if neuron_target is None else neuron_target.binding)
        return NeuronBackend(neuron_target)
    raise ArtifactError(
        f"backend `{name}` is not available in this version",
        hint="set `backend: cpu` in the configuration",
    )
