"""Rotary embeddings of GGUF files compute the frequencies that the files mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import LLAMA, load_reference, random_prompt, save_model

from neuron_llm.compile.model.checkpoint import convert_gguf
from neuron_llm.compile.model.gguf_header import read_gguf_header
from neuron_llm.compile.model.gguf_spec import gguf_config
from neuron_llm.compile.model.model_spec import read_model_spec
from neuron_llm.errors import UnsupportedModelError

gguf = pytest.importorskip("gguf")

from gguf_factory import write_gguf_model  # noqa: E402  only where the package is

THETA = 500000.0
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": THETA,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# Wide enough that frequencies are kept, faded and divided.
HEAD_DIM = 64


def llama3_divisors(**changes: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The tensor as llama.cpp's converter makes it, one frequency after the other."""
    parameters = {**LLAMA3, **changes}
    original = parameters["original_max_position_embeddings"]
    low, high, factor = (parameters[f"{name}factor"] for name in ("low_freq_", "high_freq_", ""))
    divisors = []
    for index in range(0, HEAD_DIM, 2):
        wavelength = 2 * math.pi * THETA ** (index / HEAD_DIM)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    assert len({*divisors}) > 3
    return np.array(divisors, np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Path]:
    def save(rope: dict[str, Any]) -> Path:
        settings = {**LLAMA, "head_dim": HEAD_DIM, "rope_parameters": {"rope_theta": THETA, **rope}}
        settings["max_position_embeddings"] = 131072
        return save_model(tmp_path_factory.mktemp("hf"), settings)

    return save


@pytest.mark.parametrize(
    ("rope", "metadata", "extra"),
    [
        (LLAMA3, {}, {"rope_freqs.weight": llama3_divisors()}),
        (
            {"rope_type": "linear", "factor": 4.0},
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            {},
        ),
        (
            {"rope_type": "linear", "factor": 4.0},
            {"llama.rope.scaling.factor": 4.0},
            {},
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 32768,
                "llama.rope.scaling.finetuned": True,
            },
            {},
        ),
        ({"rope_type": "default"}, {"llama.rope.scaling.type": "none"}, {}),
    ],
    ids=["llama3", "linear", "linear_unnamed", "yarn", "none"],
)
def test_scaled_positions_are_those_of_the_model(
    rope: dict[str, Any],
    metadata: dict[str, Any],
    extra: dict[str, Any],
    model: Callable[[dict[str, Any]], Path],
    tmp_path: Path,
) -> None:
    model_dir = model(rope)
    file = write_gguf_model(tmp_path / "m.gguf", model_dir, metadata=metadata, extra=extra)
    convert_gguf(file.path, tmp_path / "checkpoint")
    input_ids = torch.tensor([random_prompt(16, seed=2)])
    positions = torch.arange(0, 16 * 4000, 4000)[None]
    with torch.no_grad():
        expected, logits = (
            load_reference(directory)(input_ids, position_ids=positions).logits
            for directory in (model_dir, tmp_path / "checkpoint")
        )
    assert torch.equal(logits, expected)
    assert read_model_spec(file.path) == read_model_spec(tmp_path / "checkpoint")


def test_the_base_is_ten_thousand_unless_said(llama_model: Path, tmp_path: Path) -> None:
    file = write_gguf_model(
        tmp_path / "m.gguf", llama_model, metadata={"llama.rope.freq_base": None}
    )
    rope = gguf_config(read_gguf_header(file.path))["rope_parameters"]
    assert rope == {"rope_theta": 10000.0, "rope_type": "default"}


@pytest.mark.parametrize(
    ("metadata", "extra", "reason"),
    [
        ({"llama.rope.scaling.type": "longrope"}, {}, "`llama.rope.scaling.type` = `longrope`"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0},
            {},
            "`llama.rope.scaling.type` = `yarn`",
        ),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 64,
                "llama.rope.scaling.attn_factor": 2.0,
            },
            {},
            "`llama.rope.scaling.attn_factor` = `2.0`",
        ),
        ({}, {"rope_factors_long.weight": np.ones(8, np.float32)}, "`rope_factors_long.weight`"),
        ({}, {"rope_freqs.weight": np.arange(1, 9, dtype=np.float32)}, "another way than Llama 3"),
        ({}, {"rope_freqs.weight": np.ones(7, np.float32)}, "another way than Llama 3"),
        ({}, {"rope_freqs.weight": np.ones(8, np.float16)}, "another way than Llama 3"),
        ({"llama.rope.dimension_count": 8}, {}, "rotates 8 of 16 dimensions of a head"),
    ],
)
def test_positions_that_cannot_be_said_are_refused_when_planned(
    metadata: dict[str, Any],
    extra: dict[str, Any],
    reason: str,
    llama_model: Path,
    tmp_path: Path,
) -> None:
    file = write_gguf_model(tmp_path / "m.gguf", llama_model, metadata=metadata, extra=extra)
    with pytest.raises(UnsupportedModelError) as caught:
        read_model_spec(file.path)
    assert reason in caught.value.message and caught.value.hint is not None


def test_divisors_of_another_llama_are_not_mistaken(
    model: Callable[[dict[str, Any]], Path], tmp_path: Path
) -> None:
    divisors = llama3_divisors(original_max_position_embeddings=4096)
    extra = {"rope_freqs.weight": divisors}
    file = write_gguf_model(tmp_path / "m.gguf", model({}), extra=extra)
    with pytest.raises(UnsupportedModelError, match="another way than Llama 3"):
        read_model_spec(file.path)
