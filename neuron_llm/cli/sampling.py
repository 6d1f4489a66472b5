"""Sampling fields from flags and from the artifact, the two layers below a line's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from neuron_llm.errors import ArtifactError, RequestError
from neuron_llm.runtime.sampling.sampling_params import SamplingParams, generation_config_fields

_GENERATION_CONFIG = "generation_config.json"


def given_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, checked like the fields of a line.

    Raises:
        typer.BadParameter: a value is out of range, or two contradict each other.
    """
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    try:
        # `min_tokens` may fit what only a line or the model says about `max_tokens`.
        SamplingParams.merged(given, {"max_tokens": None})
    except RequestError as error:
        raise typer.BadParameter(error.message) from error
    return given


def generation_fields(artifact_dir: Path) -> dict[str, Any]:
    """Return what the model's `generation_config.json` says.

    Raises:
        ArtifactError: the file is damaged.
    """
    path = artifact_dir / _GENERATION_CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if not isinstance(config, dict):
            raise ValueError("it is no JSON object")
        fields = generation_config_fields(config)
        SamplingParams.merged(fields, {"max_tokens": None})
    except (OSError, ValueError, RecursionError, RequestError) as error:
        raise ArtifactError(
            f"`{path}` cannot be used: {error}",
            hint="compile again with a model whose file is right: `neuron-llm compile CONFIG`",
        ) from error
    return fields
