"""The instruction set levels that the operator library is built for."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

_AVX2_FEATURES = ("avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_AVX512_FEATURES = (
    *_AVX2_FEATURES,
    *("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
)


class IsaLevel(StrEnum):
    """A set of instructions that one build of the library uses; the widest comes first."""

    AVX512_BF16 = "avx512_bf16"
    AVX512 = "avx512"
    AVX2 = "avx2"
    PORTABLE = "portable"


# What a level needs, by the names that `/proc/cpuinfo` uses.
_FEATURES: dict[IsaLevel, tuple[str, ...]] = {
    IsaLevel.AVX512_BF16: (*_AVX512_FEATURES, "avx512_bf16"),
    IsaLevel.AVX512: _AVX512_FEATURES,
    IsaLevel.AVX2: _AVX2_FEATURES,
    IsaLevel.PORTABLE: (),
}


def missing_features(level: IsaLevel, features: Collection[str]) -> list[str]:
    """Return what a CPU lacks to run a level, sorted.

    Args:
        level: the level of a built library.
        features: the CPU's, as `cpu_features` returns them.
    """
    return sorted(set(_FEATURES[level]) - set(features))


def widest_level(features: Collection[str]) -> IsaLevel:
    """Return the widest level that a CPU with these features runs."""
    return next(level for level in IsaLevel if not missing_features(level, features))


# The generic architectures of the x86-64 ABI, whose instructions the features above are.
_ARCHITECTURES = {
    IsaLevel.AVX512_BF16: "x86-64-v4",
    IsaLevel.AVX512: "x86-64-v4",
    IsaLevel.AVX2: "x86-64-v3",
    IsaLevel.PORTABLE: "x86-64",
}


def architecture(level: IsaLevel) -> str:
    """Return the architecture that g++ knows a level's instructions by, save those for bfloat16."""
    return _ARCHITECTURES[level]


def compiler_flags(level: IsaLevel) -> list[str]:
    """Return the flags that make g++ use a level's instructions, and no others."""
    bfloat16 = ["-mavx512bf16"] if level is IsaLevel.AVX512_BF16 else []
    return [f"-march={architecture(level)}", *bfloat16]
