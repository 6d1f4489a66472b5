"""A model as transformers builds it: its configuration, and its parameters without memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neuron_llm.errors import ModelNotFoundError


def load_config(directory: Path) -> Any:
    """Return the transformers configuration of a Hugging Face directory.

    Raises:
        ModelNotFoundError: its `config.json` describes no model that can be built.
    """
    from transformers import AutoConfig

    with _no_model(directory):
        return AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)


def build_config(settings: Mapping[str, Any], source: Path) -> Any:
    """Return the transformers configuration that a `config.json` would give.

    Args:
        settings: the content of a `config.json`.
        source: the file it was made of, for messages.

    Raises:
        ModelNotFoundError: the settings describe no model that can be built.
    """
    from transformers import AutoConfig

    with _no_model(source):
        return AutoConfig.for_model(**settings)


def meta_model(config: Any, source: Path) -> Any:
    """Return the causal language model of a configuration, on the meta device.

    Args:
        config: a transformers configuration.
        source: where it is from, for messages.

    Raises:
        ModelNotFoundError: no model can be built of it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with _no_model(source), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


@contextmanager
def _no_model(source: Path) -> Iterator[None]:
    from huggingface_hub.errors import StrictDataclassError

    try:
        yield
    # What sizes that contradict each other raise, in a configuration or in a layer made of them.
    except (
        StrictDataclassError,
        ArithmeticError,
        AttributeError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else type(error).__name__
        raise ModelNotFoundError(
            f"the configuration in `{source}` describes no model: {reason}",
            hint="download the model again",
        ) from error
