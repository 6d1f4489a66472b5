"""A model as transformers builds it: its configuration, its parameters with and without memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuron_llm.errors import ModelNotFoundError

if TYPE_CHECKING:
    import torch


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


def load_model(checkpoint: Path, dtype: torch.dtype) -> tuple[Any, Mapping[str, Any]]:
    """Return the model of a Hugging Face directory with its weights, and what loading it met.

    Weights of a quantised checkpoint are dequantised; others than safetensors are not read.

    Args:
        checkpoint: the directory.
        dtype: what floating-point weights are converted to.

    Raises:
        OSError: there are no weights, or they are damaged.
        RuntimeError: they have other shapes than the configuration says.
        ValueError: the configuration contradicts itself.
    """
    from transformers import AutoModelForCausalLM
    from transformers.quantizers import AutoQuantizationConfig

    quantization = getattr(load_config(checkpoint), "quantization_config", None)
    options = {}
    if quantization is not None:
        dequantized = {**quantization, "dequantize": True}
        options["quantization_config"] = AutoQuantizationConfig.from_dict(dequantized)
    model, loading = AutoModelForCausalLM.from_pretrained(
        checkpoint,
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
        **options,
    )
    return model, loading


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
