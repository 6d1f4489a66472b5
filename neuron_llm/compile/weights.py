"""Write a checkpoint's weights once, in the graphs' dtype, for every graph to map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch

from neuron_llm.backends.graph.rotary import fix_rotary_frequencies
from neuron_llm.backends.graph.spec import ConstantSpec, TensorSpec
from neuron_llm.compile.model.safetensors_writer import SafetensorsWriter
from neuron_llm.compile.model.transformers_model import load_model
from neuron_llm.errors import ArtifactError, ModelNotFoundError

LayOut = Callable[[ConstantSpec, Sequence[torch.Tensor]], torch.Tensor]
"""Makes a constant as it is stored from the weights that it is made of."""


def write_weights(
    tensors: Mapping[str, torch.Tensor],
    constants: Mapping[str, ConstantSpec],
    lay_out: LayOut,
    path: Path,
) -> dict[str, str]:
    """Write what graphs read of a model's weights into one safetensors file.

    One constant at a time is laid out and written, so that there is never a second copy of all of
    them in memory. Tied weights are stored once.

    Args:
        tensors: parameters and buffers of the model, see `load_weights`.
        constants: what the graphs read, by its name in the file; those that are not made of
            `tensors` belong to a graph alone and are left out.
        lay_out: makes a constant from its parts.
        path: the file to write.

    Returns:
        The names that share another's storage, each with the stored name.

    Raises:
        ArtifactError: the file cannot be written.
    """
    stored: dict[int, str] = {}
    aliases = {}
    kept = []
    for name, constant in sorted(constants.items()):
        parts = constant.parts or (name,)
        if parts[0] not in tensors:
            continue
        first = name if constant.parts else stored.setdefault(tensors[name].data_ptr(), name)
        if first == name:
            kept.append((constant, [tensors[part] for part in parts]))
        else:
            aliases[name] = first
    layout = [TensorSpec(constant.weight, constant.shape, constant.dtype) for constant, _ in kept]
    try:
        with SafetensorsWriter(path, layout) as writer:
            for constant, sources in kept:
                writer.write(lay_out(constant, sources))
    except OSError as error:
        raise ArtifactError(
            f"`{path}` cannot be written: {error.strerror}",
            hint="make room, or name another folder",
        ) from error
    return aliases


def load_weights(
    checkpoint: Path, dtype: torch.dtype, *, max_model_len: int | None = None
) -> dict[str, torch.Tensor]:
    """Return parameters and buffers of a checkpoint by name.

    Buffers that a checkpoint leaves out, such as rotary frequencies, are among them.

    Args:
        checkpoint: a Hugging Face directory with safetensors.
        dtype: what parameters are converted to.
        max_model_len: see `fix_rotary_frequencies`.

    Raises:
        ModelNotFoundError: no safetensors there, or weights that the architecture needs are absent,
            or one of them is not finite.
    """
    model = _load(checkpoint, dtype)
    fix_rotary_frequencies(model, max_model_len)
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    _require_finite(checkpoint, tensors)
    return tensors


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


def _load(checkpoint: Path, dtype: torch.dtype) -> torch.nn.Module:
    model: torch.nn.Module
    try:
        model, loading = load_model(checkpoint, dtype)
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
    return model


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _some(names: Iterable[object]) -> str:
    texts = [f"`{name}`" for name in names]
    shown = ", ".join(texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3} more"
