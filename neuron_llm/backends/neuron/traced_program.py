"""What a binding tells about a program that it has compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuron_llm.backends.graph.spec import ConstantSpec


@dataclass(frozen=True)
class TracedProgram:
    """What is not in the compiled file.

    Attributes:
        constants: the weights that it reads.
        returned: caches that it returns after its result, by name and in order.
        hlo_sha256: of what the compiler was given.
    """

    constants: Sequence[ConstantSpec]
    returned: Sequence[str]
    hlo_sha256: Mapping[str, str]
