"""`linear_packed`, on every level that this CPU runs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from level_libraries import level_library
from linear_reference import DTYPES, LinearCase, bits, random_case
from shim_call import call_shim

from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.operators.library import OperatorLibrary
from neuron_llm.backends.cpu.operators.packing import pack_weight, packed_shape
from neuron_llm.backends.cpu.operators.registration import use_library
from neuron_llm.errors import NeuronLLMError

ROWS = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 64, 128, 129, 300)


@pytest.fixture(scope="module", params=list(IsaLevel), autouse=True)
def library(request: pytest.FixtureRequest) -> OperatorLibrary:
    built = level_library(request.param, request.config)
    use_library(built)
    return built


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Waiting for a second thread takes long where all cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(case: LinearCase) -> torch.Tensor:
    weight = pack_weight(case.weight)
    result: torch.Tensor = torch.ops.neuron_llm.linear_packed(
        case.inputs, weight, case.bias, case.weight.shape[0]
    )
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no_bias"])
def test_results_are_the_exact_ones_rounded(dtype: torch.dtype, has_bias: bool) -> None:
    # Panels are 32 outputs, blocks 512 words of inputs, tiles 6 or 12 rows.
    shapes = [(1, 1), (31, 7), (32, 64), (33, 511), (70, 513), (96, 1025), (5, 2048)]
    for out_features, in_features in shapes:
        for num_rows in ROWS[:10]:
            case = random_case(num_rows, out_features, in_features, dtype, has_bias=has_bias)
            case.check(run(case))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_rows_are_computed_in_blocks(dtype: torch.dtype) -> None:
    for num_rows in (144, 145, 431):
        case = random_case(num_rows, 65, 130, dtype, has_bias=True)
        case.check(run(case))


@settings(max_examples=40)
@given(
    num_rows=st.integers(1, 30),
    out_features=st.integers(1, 80),
    in_features=st.integers(1, 120),
    dtype=st.sampled_from(DTYPES),
    has_bias=st.booleans(),
)
def test_any_shape_is_allowed(
    num_rows: int, out_features: int, in_features: int, dtype: torch.dtype, has_bias: bool
) -> None:
    case = random_case(num_rows, out_features, in_features, dtype, has_bias=has_bias)
    case.check(run(case))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_rows_bits_depend_on_that_row_alone(dtype: torch.dtype) -> None:
    # Large enough for threads even with one row, with several blocks and a last panel cut short.
    whole = random_case(300, 200, 1111, dtype, has_bias=True)
    expected = bits(run(whole))
    for num_threads, numbers_of_rows in ((1, ROWS), (2, (1, 7, 300)), (3, (13, 300))):
        torch.set_num_threads(num_threads)
        for num_rows in numbers_of_rows:
            first = 300 - num_rows
            rows = LinearCase(whole.inputs[first:], whole.weight, whole.bias)
            assert torch.equal(bits(run(rows)), expected[first:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_infinity_stay_in_their_row(dtype: torch.dtype) -> None:
    case = random_case(30, 40, 65, dtype, has_bias=False)
    expected = bits(run(case))
    case.inputs[7, 3], case.inputs[20, 64] = math.nan, math.inf
    result = run(case)
    assert result[7].isnan().all()
    assert torch.equal(result[20], case.weight[:, 64].sign() * math.inf)
    others = [row for row in range(30) if row not in (7, 20)]
    assert torch.equal(bits(result)[others], expected[others])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_behind_the_operands_do_not_matter(dtype: torch.dtype) -> None:
    case = random_case(3, 33, 65, dtype, has_bias=True)
    assert case.bias is not None
    expected = run(case)
    poisoned = []
    for operand in (case.inputs, pack_weight(case.weight), case.bias):
        memory = torch.full((operand.numel() + 4096,), math.nan, dtype=dtype)
        memory[: operand.numel()] = operand.flatten()
        poisoned.append(memory[: operand.numel()].view(operand.shape))
    result = torch.ops.neuron_llm.linear_packed(*poisoned, 33)
    assert torch.equal(bits(result), bits(expected))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_an_earlier_call_left_in_memory_does_not_matter(dtype: torch.dtype) -> None:
    case = random_case(3, 40, 65, dtype, has_bias=False)
    expected = bits(run(case))
    nan, packed = torch.full((3, 96), math.nan, dtype=dtype), pack_weight(case.weight)
    packed_for_nan = pack_weight(torch.ones(40, 96, dtype=dtype))
    # One call after the other, so that the second one gets the first one's memory.
    torch.ops.neuron_llm.linear_packed(nan, packed_for_nan, None, 40)
    result = torch.ops.neuron_llm.linear_packed(case.inputs, packed, None, 40)
    assert torch.equal(bits(result), expected)


def test_leading_dimensions_are_kept() -> None:
    case = random_case(6, 10, 20, torch.float32, has_bias=True)
    flat = run(case)
    for leading in ((6,), (2, 3), (1, 6, 1)):
        inputs = case.inputs.view(*leading, 20)
        result = run(LinearCase(inputs, case.weight, case.bias))
        assert torch.equal(result, flat.view(*leading, 10))
    assert torch.equal(run(LinearCase(case.inputs[0], case.weight, case.bias)), flat[0])


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


def test_exported_graphs_know_the_result_and_that_nothing_is_changed() -> None:
    case = random_case(4, 40, 6, torch.bfloat16, has_bias=True)
    torch.library.opcheck(
        torch.ops.neuron_llm.linear_packed.default,
        (case.inputs, pack_weight(case.weight), case.bias, 40),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no_bias"])
def test_compiled_graphs_get_the_same_bits(
    library: OperatorLibrary, dtype: torch.dtype, has_bias: bool
) -> None:
    case = random_case(6, 40, 9, dtype, has_bias=has_bias)
    inputs = case.inputs.view(2, 3, 9)
    result = call_shim(library, "linear_packed", inputs, pack_weight(case.weight), case.bias, 40)
    assert result is not None and result.shape == (2, 3, 40)
    assert torch.equal(bits(result), bits(run(case)).view(2, 3, 40))


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
    assert library.last_error() == "`weight` has shape [1, 8, 32], but must have [2, 8, 32]"
