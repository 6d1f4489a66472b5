"""`linear_packed`: how a weight is packed, and what is refused; see `test_linears.py`."""

from __future__ import annotations

import pytest
import torch
from level_libraries import level_library
from linear_reference import DTYPES, random_case
from shim_call import call_shim, last_error

from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.operators.library import OperatorLibrary
from neuron_llm.backends.cpu.operators.packing import pack_weight, packed_shape
from neuron_llm.backends.cpu.operators.registration import use_library
from neuron_llm.errors import NeuronLLMError


@pytest.fixture(scope="module", params=list(IsaLevel), autouse=True)
def library(request: pytest.FixtureRequest) -> OperatorLibrary:
    built = level_library(request.param, request.config)
    use_library(built)
    return built


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_packing_puts_panels_of_outputs_side_by_side(dtype: torch.dtype) -> None:
    weight = random_case(1, 35, 5, dtype, has_bias=False).weight
    packed = pack_weight(weight)
    assert packed.shape == packed_shape(35, 5, dtype)
    assert packed.is_contiguous() and packed.dtype == dtype
    by_input = packed if packed.dim() == 3 else packed.transpose(2, 3).flatten(1, 2)
    assert torch.equal(by_input[0, :5, 31], weight[31])
    assert torch.equal(by_input[1, :5, 2], weight[34])
    assert by_input.count_nonzero() == weight.count_nonzero()


def test_packed_shapes_are_filled_up_to_whole_panels_and_pairs() -> None:
    assert packed_shape(64, 576, torch.float32) == (2, 576, 32)
    assert packed_shape(65, 577, torch.float32) == (3, 577, 32)
    assert packed_shape(64, 576, torch.bfloat16) == (2, 288, 32, 2)
    assert packed_shape(1, 577, torch.float16) == (1, 289, 32, 2)


INPUTS, WEIGHT, BIAS = torch.ones(2, 8), torch.ones(1, 8, 32), torch.ones(20)
FAULTS: dict[str, dict[str, torch.Tensor | int | None]] = {
    "`input` is int32, but must be float32, bfloat16 or float16": {"input": INPUTS.int()},
    "`weight` is bfloat16, but must be float32": {"weight": WEIGHT.bfloat16()},
    "`bias` is float16, but must be float32": {"bias": BIAS.half()},
    r"`input` has no dimensions": {"input": torch.tensor(1.0)},
    r"`input` is empty: its shape is \[0, 8\]": {"input": INPUTS[:0]},
    r"`output` is empty: its shape is \[2, 0\]": {"out_features": 0},
    r"`weight` has shape \[1, 8, 32\], but must have \[2, 8, 32\]": {
        "bias": None,
        "out_features": 33,
    },
    r"`weight` has shape \[1, 8, 32\], but must have \[1, 7, 32\]": {"input": torch.ones(2, 7)},
    r"`weight` has shape \[1, 8, 32\], but must have \[1, 4, 32, 2\]": {
        "input": INPUTS.half(),
        "weight": WEIGHT.half(),
        "bias": BIAS.half(),
    },
    r"`bias` has shape \[19\], but must have \[20\]": {"bias": BIAS[:19]},
    "`input` has stride 2 in dimension 1, but must have 1": {"input": torch.ones(8, 2).T},
    "`weight` has stride 2 in dimension 2, but must have 1": {
        "weight": torch.ones(1, 8, 64)[..., ::2]
    },
    "`bias` has stride 2 in dimension 0, but must have 1": {"bias": torch.ones(40)[::2]},
}


@pytest.mark.parametrize("message", FAULTS)
def test_wrong_operands_are_refused(message: str) -> None:
    valid = {"input": INPUTS, "weight": WEIGHT, "bias": BIAS, "out_features": 20}
    operands = {**valid, **FAULTS[message]}
    with pytest.raises(NeuronLLMError, match=f"linear_packed: {message}"):
        torch.ops.neuron_llm.linear_packed(*operands.values())


def test_compiled_graphs_get_the_message_too(library: OperatorLibrary) -> None:
    assert call_shim(library, "linear_packed", INPUTS, WEIGHT, None, 33) is None
    assert last_error(library) == "`weight` has shape [1, 8, 32], but must have [2, 8, 32]"
