"""Operator libraries of all levels, built once and kept between sessions."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
    """Return the path of the level's library; the first call builds those of all levels at once.

    Warnings are errors.
    """
    assert config.cache is not None
    build = partial(
        build_library,
        directory=config.cache.mkdir("operator_libraries"),
        compiler_options=WARNINGS,
    )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = dict(zip(IsaLevel, pool.map(build, IsaLevel), strict=True))
    return paths[level]


def level_library(level: IsaLevel, config: pytest.Config) -> OperatorLibrary:
    """Return the level's library; skip the test if this CPU cannot run it."""
    if missing := missing_features(level, cpu_features()):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    return load_library(built_library(level, config))
