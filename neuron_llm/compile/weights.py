"""Write a checkpoint's weights once, in the graphs' dtype, for every graph to map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from neuron_llm.errors import ArtifactError, ModelNotFoundError


def write_weights(checkpoint: Path, dtype: torch.dtype, path: Path) -> dict[str, str]:
    """Write parameters and buffers of a checkpoint into one safetensors file.

    Buffers that a checkpoint leaves out, such as rotary frequencies, are carried along. Tied
    weights are stored once.

    Args:
        checkpoint: a Hugging Face directory with safetensors.
        dtype: what parameters are converted to.
        path: the file to write.

    Returns:
        The names that share another's storage, each with the stored name.

    Raises:
        ModelNotFoundError: no safetensors there, or weights that the architecture needs are absent,
            or one of them is not finite.
        ArtifactError: the file cannot be written.
    """
    tensors = _load(checkpoint, dtype)
    _require_finite(checkpoint, tensors)
    stored: dict[int, str] = {}
    aliases = {}
    for name, tensor in tensors.items():
        first = stored.setdefault(tensor.data_ptr(), name)
        if first != name and tensor.shape == tensors[first].shape:
            aliases[name] = first
    kept = {name: t.contiguous() for name, t in tensors.items() if name not in aliases}
    try:
        save_file(kept, path)
    except SafetensorError as error:
        raise ArtifactError(
            f"`{path}` cannot be written: {error}", hint="make room, or name another folder"
        ) from error
    return aliases


def _require_finite(checkpoint: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            # The extremes show a NaN as well as an infinity, without a second tensor.
            extremes = torch.stack(torch.aminmax(tensor))
            if not extremes.isfinite().all():
                dtype = str(tensor.dtype).removeprefix("torch.")
                raise ModelNotFoundError(
                    f"`{name}` of `{checkpoint}` holds NaN or infinity in {dtype}",
                    hint="set a wider `dtype`, or download the model again",
                )


def _load(checkpoint: Path, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    try:
        model, loading = AutoModelForCausalLM.from_pretrained(
            checkpoint,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelNotFoundError(
            f"the weights of `{checkpoint}` cannot be loaded: {_first_line(error)}",
            hint="give a directory with safetensors files; other formats are not read",
        ) from error
    faults = [*sorted(loading["missing_keys"]), *sorted(loading["mismatched_keys"])]
    if faults:
        raise ModelNotFoundError(
            f"the weights of `{checkpoint}` do not fit its config.json: {_some(faults)} "
            "missing or of another shape",
            hint="download the model again",
        )
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _some(names: Iterable[object]) -> str:
    texts = [f"`{name}`" for name in names]
    shown = ", ".join(texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3} more"
