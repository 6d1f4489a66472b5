"""What an artifact says of sampling: the layer below a request's own fields. Knows no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from neuron_llm.artifact.manifest import Manifest
from neuron_llm.errors import ArtifactError, RequestError
from neuron_llm.runtime.sampling.greedy_only import default_fields
from neuron_llm.runtime.sampling.sampling_params import SamplingParams, generation_config_fields

_GENERATION_CONFIG = "generation_config.json"


def generation_defaults(artifact_dir: Path, manifest: Manifest) -> dict[str, Any]:
    """Return the sampling fields that hold where a request names none.

    They are those of the model's `generation_config.json`, and temperature 0 over them where the
    graphs give tokens instead of logits.

    Raises:
        ArtifactError: the file is damaged.
    """
    greedy = default_fields(samples_greedily=manifest.settings.samples_greedily)
    return _generation_config(artifact_dir / _GENERATION_CONFIG) | greedy


def _generation_config(path: Path) -> dict[str, Any]:
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
