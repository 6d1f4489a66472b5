"""The rotary embedding of a GGUF file, as `rope_parameters` of a `config.json`.

A file says it in three places: the base, a scaling by name, and a tensor of one divisor per
frequency, `rope_freqs.weight`, for which Llama 3 has a formula of four numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from neuron_llm.compile.model.gguf_header import GgufHeader
from neuron_llm.errors import UnsupportedModelError

DIVISORS_TENSOR = "rope_freqs.weight"

_DEFAULT_BASE = 10000.0
_YARN_KEYS = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
_YARN_NEEDS = {"factor", "original_context_length"}
# Not part of how frequencies are computed.
_REMARKS = {"type", "finetuned"}
_HINT = "give the model as a Hugging Face directory"
# The constants of every Llama 3; a file holds their outcome only.
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def rope_parameters(header: GgufHeader, architecture: str, head_dim: int) -> dict[str, Any]:
    """Return the parameters of the rotary embedding of layers that see the whole context.

    Args:
        header: of the file.
        architecture: the prefix of its keys.
        head_dim: width of a head.

    Raises:
        UnsupportedModelError: frequencies that static graphs or `config.json` cannot express.
    """
    prefix = f"{architecture}.rope."
    base = header.metadata.get(f"{prefix}freq_base", _DEFAULT_BASE)
    scaling = _scaling(header, f"{prefix}scaling.")
    for name in header.tensors:
        if name.startswith("rope_") and name != DIVISORS_TENSOR:
            raise UnsupportedModelError(
                f"`{header.path}` scales positions by the length of the text (`{name}`)",
                hint="give a model without LongRoPE; static graphs cannot switch frequencies",
            )
    if DIVISORS_TENSOR in header.tensors:
        scaling = _llama3_scaling(header, base, head_dim)
    return {"rope_theta": base, **scaling}


def _scaling(header: GgufHeader, prefix: str) -> dict[str, Any]:
    said = {
        key.removeprefix(prefix): value
        for key, value in header.metadata.items()
        if key.startswith(prefix)
    }
    # A factor without a type divides positions, as the format's own programs read it.
    kind = said.get("type", "linear" if "factor" in said else "none")
    if kind == "none":
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": said.get("factor", 1.0)}
    unknown = sorted(said.keys() - _YARN_KEYS.keys() - _REMARKS)
    if kind != "yarn" or unknown or not said.keys() >= _YARN_NEEDS:
        key = unknown[0] if unknown else "type"
        raise UnsupportedModelError(
            f"`{header.path}` scales positions by `{prefix}{key}` = `{said[key]}`", hint=_HINT
        )
    return {
        "rope_type": "yarn",
        **{hf_key: said[key] for key, hf_key in _YARN_KEYS.items() if key in said},
    }


def _llama3_scaling(header: GgufHeader, base: float, head_dim: int) -> dict[str, Any]:
    tensor = header.tensors[DIVISORS_TENSOR]
    if tensor.type_name != "F32" or tensor.shape != (head_dim // 2,):
        raise _strange_divisors(header)
    divisors = header.read(tensor, 0, 1)[0].view(np.float32)
    parameters = {"rope_type": "llama3", "factor": float(divisors.max()), **_LLAMA3}
    if not np.allclose(divisors, _llama3_divisors(parameters, base, head_dim), rtol=1e-4):
        raise _strange_divisors(header)
    return parameters


def _llama3_divisors(
    parameters: dict[str, Any], base: float, head_dim: int
) -> npt.NDArray[np.float64]:
    """Return what Llama 3 divides each frequency by, `[head_dim / 2]`.

    Waves shorter than `original / high` stay, those longer than `original / low` are stretched by
    `factor`, and in between `factor` fades in.
    """
    original, factor = parameters["original_max_position_embeddings"], parameters["factor"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    wavelengths = 2 * math.pi * base ** (np.arange(0, head_dim, 2) / head_dim)
    fading = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    divisors: npt.NDArray[np.float64] = 1 / ((1 - fading) / factor + fading)
    return divisors


def _strange_divisors(header: GgufHeader) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"`{header.path}` divides frequencies by `{DIVISORS_TENSOR}` in another way than Llama 3",
        hint=_HINT,
    )
