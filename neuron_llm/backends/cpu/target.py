"""What a CPU graph is compiled for: an instruction set, and with or without our operators.

And what its files are called. Knows no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import (
    IsaLevel,
    architecture,
    missing_features,
    widest_level,
)
from neuron_llm.errors import CompileError

GRAPH_FILE = "graph.so"
CONSTANTS_FILE = "constants.safetensors"
"""Tensors of the graph that are no weights of the checkpoint; not every graph has them."""


@dataclass(frozen=True)
class CpuTarget:
    """The choices that are the CPU backend's own.

    Attributes:
        isa_level: instructions that graphs and operators may use.
        custom_ops: whether attention and linear layers run in the operator library; else the graph
            is plain aten, which is slower and serves as the reference.
    """

    isa_level: IsaLevel
    custom_ops: bool = True

    @classmethod
    def choose(cls, isa_level: str | None, *, custom_ops: bool) -> CpuTarget:
        """Return the target of a level's name; None is the widest level of this CPU.

        Raises:
            CompileError: there is no such level, or this CPU does not have it: compiling tries
                what it builds.
        """
        features = cpu_features()
        if isa_level is None:
            return cls(widest_level(features), custom_ops)
        if isa_level not in set(IsaLevel):
            known = ", ".join(f"`{level}`" for level in IsaLevel)
            raise CompileError(f"no instruction set level `{isa_level}`", hint=f"known: {known}")
        level = IsaLevel(isa_level)
        missing = missing_features(level, features)
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise CompileError(
                f"this CPU cannot compile for `{level}`: it lacks {names}",
                hint=f"the widest level it has is `{widest_level(features)}`",
            )
        return cls(level, custom_ops)


def vector_options(level: IsaLevel) -> dict[str, Any]:
    """Return the compiler options that hold the generated kernels to a level's instructions."""
    widths = {IsaLevel.AVX512_BF16: 512, IsaLevel.AVX512: 512, IsaLevel.AVX2: 256}
    # A width that no instruction set has means none.
    return {"cpp.march": architecture(level), "cpp.simdlen": widths.get(level, 1)}
