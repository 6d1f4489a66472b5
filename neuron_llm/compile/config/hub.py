"""A model named by its hub id: downloaded once, and pinned to the commit it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from neuron_llm.compile.config.file import LoadedConfig
from neuron_llm.compile.model.model_spec import read_model_spec
from neuron_llm.errors import ModelNotFoundError

_PATTERNS = ("*.json", "*.jinja", "tokenizer*", "merges.txt", "vocab.txt")
_WEIGHTS_PATTERN = "*.safetensors"


def with_local_model(loaded: LoadedConfig, *, skip_weights: bool = False) -> LoadedConfig:
    """Return the configuration with its model on this machine; a hub id is downloaded.

    The revision becomes the commit that was downloaded.

    Args:
        loaded: a configuration.
        skip_weights: download no weights, see `read_model_spec`.

    Raises:
        ModelNotFoundError: the hub cannot be reached, or has no such model or revision.
    """
    if loaded.model_path is not None:
        return loaded
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    config = loaded.config
    patterns = list(_PATTERNS) if skip_weights else [*_PATTERNS, _WEIGHTS_PATTERN]
    try:
        directory = Path(
            snapshot_download(config.model, revision=config.revision, allow_patterns=patterns)
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelNotFoundError(
            f"`{config.model}` at revision `{config.revision}` cannot be downloaded: "
            f"{str(error).splitlines()[0]}",
            hint="give the directory of a model that is on this machine as `model`",
        ) from error
    return replace(
        loaded,
        config=config.model_copy(update={"revision": directory.name}),
        model_path=directory,
        model_spec=read_model_spec(directory, skip_weights=skip_weights),
    )
