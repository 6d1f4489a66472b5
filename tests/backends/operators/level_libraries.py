"""Operator libraries of all levels, built once and kept between sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import IsaLevel, missing_features
from neuron_llm.backends.cpu.operators.library import (
    OperatorLibrary,
    build_library,
    load_library,
)

WARNINGS = ("-Wall", "-Wextra", "-Werror")


def built_library(level: IsaLevel, config: pytest.Config) -> Path:
    """Return the path of the level's library, built with all warnings as errors."""
    assert config.cache is not None
    directory = config.cache.mkdir("operator_libraries")
    return build_library(level, directory, compiler_options=WARNINGS)


def level_library(level: IsaLevel, config: pytest.Config) -> OperatorLibrary:
    """Return the level's library; skip the test if this CPU cannot run it."""
    if missing := missing_features(level, cpu_features()):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    return load_library(built_library(level, config))
