"""`linear` on a weight as checkpoints store it: its rows, and what is refused.

What holds for both linear operators is in `test_linears.py`.
"""

from __future__ import annotations

import math

import pytest
import torch
from level_libraries import level_library
from linear_reference import DTYPES, ROW_MAJOR, LinearCase, bits, random_case
from shim_call import call_shim, last_error

from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.operators.library import OperatorLibrary
from neuron_llm.backends.cpu.operators.registration import use_library
from neuron_llm.errors import NeuronLLMError

run = ROW_MAJOR.run


@pytest.fixture(scope="module", params=list(IsaLevel), autouse=True)
def library(request: pytest.FixtureRequest) -> OperatorLibrary:
    built = level_library(request.param, request.config)
    use_library(built)
    return built


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_outputs_bits_depend_on_its_row_of_the_weight_alone(dtype: torch.dtype) -> None:
    whole = random_case(5, 23, 77, dtype, has_bias=True)
    assert whole.bias is not None
    expected = bits(run(whole))
    for output in range(23):
        one = LinearCase(whole.inputs, whole.weight[output:][:1], whole.bias[output:][:1])
        assert torch.equal(bits(run(one)), expected[:, output:][:, :1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_in_a_row_of_the_weight_stays_in_its_output(dtype: torch.dtype) -> None:
    case = random_case(30, 13, 65, dtype, has_bias=False)
    expected = bits(run(case))
    case.weight[5, 2] = math.nan
    result = run(case)
    others = [output for output in range(13) if output != 5]
    assert result[:, 5].isnan().all()
    assert torch.equal(bits(result)[:, others], expected[:, others])


INPUTS, WEIGHT, BIAS = torch.ones(2, 8), torch.ones(20, 8), torch.ones(20)
FAULTS = {
    "`input` is int32, but must be float32, bfloat16 or float16": {"input": INPUTS.int()},
    "`weight` is bfloat16, but must be float32": {"weight": WEIGHT.bfloat16()},
    "`bias` is float16, but must be float32": {"bias": BIAS.half()},
    r"`input` has no dimensions": {"input": torch.tensor(1.0)},
    r"`input` is empty: its shape is \[0, 8\]": {"input": INPUTS[:0]},
    r"`output` is empty: its shape is \[2, 0\]": {"weight": WEIGHT[:0]},
    r"`weight` has shape \[20, 8\], but must have \[20, 7\]": {"input": torch.ones(2, 7)},
    r"`weight` has shape \[20, 2, 4\], but must have \[20, 8\]": {"weight": WEIGHT.view(20, 2, 4)},
    r"`bias` has shape \[19\], but must have \[20\]": {"bias": BIAS[:19]},
    "`input` has stride 2 in dimension 1, but must have 1": {"input": torch.ones(8, 2).T},
    "`weight` has stride 20 in dimension 1, but must have 1": {"weight": torch.ones(8, 20).T},
    "`bias` has stride 2 in dimension 0, but must have 1": {"bias": torch.ones(40)[::2]},
}


@pytest.mark.parametrize("message", FAULTS)
def test_wrong_operands_are_refused(message: str) -> None:
    operands = {"input": INPUTS, "weight": WEIGHT, "bias": BIAS} | FAULTS[message]
    with pytest.raises(NeuronLLMError, match=f"linear: {message}"):
        torch.ops.neuron_llm.linear(*operands.values())


def test_compiled_graphs_get_the_message_too(library: OperatorLibrary) -> None:
    assert call_shim(library, "linear", INPUTS, WEIGHT[:, :7].contiguous(), None) is None
    assert last_error(library) == "`weight` has shape [20, 7], but must have [20, 8]"
    assert call_shim(library, "linear", INPUTS, torch.tensor(1.0), None) is None
    assert last_error(library) == "`output` is empty: its shape is [2, 0]"
