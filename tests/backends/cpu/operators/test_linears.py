"""Both linear operators, on every level that this CPU runs: what holds for either."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from level_libraries import level_library
from linear_reference import (
    DTYPES,
    PACKED,
    ROW_MAJOR,
    LinearCase,
    LinearOperator,
    bits,
    random_case,
)
from shim_call import call_shim

from neuron_llm.backends.cpu.operators.isa import IsaLevel
from neuron_llm.backends.cpu.operators.library import OperatorLibrary
from neuron_llm.backends.cpu.operators.registration import use_library

ROWS = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 64, 128, 129, 300)


@pytest.fixture(scope="module", params=list(IsaLevel), autouse=True)
def library(request: pytest.FixtureRequest) -> OperatorLibrary:
    built = level_library(request.param, request.config)
    use_library(built)
    return built


@pytest.fixture(scope="module", params=[ROW_MAJOR, PACKED], ids=lambda operator: operator.name)
def operator(request: pytest.FixtureRequest) -> LinearOperator:
    chosen: LinearOperator = request.param
    return chosen


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Waiting for a second thread takes long where all cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no_bias"])
def test_results_are_the_exact_ones_rounded(
    operator: LinearOperator, dtype: torch.dtype, has_bias: bool
) -> None:
    for out_features, in_features in operator.shapes:
        for num_rows in ROWS[:10]:
            case = random_case(num_rows, out_features, in_features, dtype, has_bias=has_bias)
            case.check(operator.run(case))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_rows_are_computed_in_blocks(operator: LinearOperator, dtype: torch.dtype) -> None:
    for num_rows in operator.many_rows:
        case = random_case(num_rows, 65, 130, dtype, has_bias=True)
        case.check(operator.run(case))


@settings(max_examples=40)
@given(
    num_rows=st.integers(1, 30),
    out_features=st.integers(1, 80),
    in_features=st.integers(1, 120),
    dtype=st.sampled_from(DTYPES),
    has_bias=st.booleans(),
)
def test_any_shape_is_allowed(
    operator: LinearOperator,
    num_rows: int,
    out_features: int,
    in_features: int,
    dtype: torch.dtype,
    has_bias: bool,
) -> None:
    case = random_case(num_rows, out_features, in_features, dtype, has_bias=has_bias)
    case.check(operator.run(case))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_rows_bits_depend_on_that_row_alone(operator: LinearOperator, dtype: torch.dtype) -> None:
    # Large enough for threads even with one row; blocks, panels and tiles are cut short.
    whole = random_case(300, 201, 1111, dtype, has_bias=True)
    expected = bits(operator.run(whole))
    for num_threads, numbers_of_rows in ((1, ROWS), (2, (1, 7, 300)), (3, (13, 300))):
        torch.set_num_threads(num_threads)
        for num_rows in numbers_of_rows:
            first = 300 - num_rows
            rows = LinearCase(whole.inputs[first:], whole.weight, whole.bias)
            assert torch.equal(bits(operator.run(rows)), expected[first:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_infinity_stay_in_their_row(operator: LinearOperator, dtype: torch.dtype) -> None:
    case = random_case(30, 40, 65, dtype, has_bias=False)
    expected = bits(operator.run(case))
    case.inputs[7, 3], case.inputs[20, 64] = math.nan, math.inf
    result = operator.run(case)
    assert result[7].isnan().all()
    assert torch.equal(result[20], case.weight[:, 64].sign() * math.inf)
    others = [row for row in range(30) if row not in (7, 20)]
    assert torch.equal(bits(result)[others], expected[others])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_behind_the_operands_do_not_matter(
    operator: LinearOperator, dtype: torch.dtype
) -> None:
    case = random_case(3, 33, 65, dtype, has_bias=True)
    poisoned = []
    for operand in operator.operands(case):
        if isinstance(operand, torch.Tensor):
            memory = torch.full((operand.numel() + 4096,), math.nan, dtype=dtype)
            memory[: operand.numel()] = operand.flatten()
            operand = memory[: operand.numel()].view(operand.shape)
        poisoned.append(operand)
    assert torch.equal(bits(operator.call(*poisoned)), bits(operator.run(case)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_an_earlier_call_left_in_memory_does_not_matter(
    operator: LinearOperator, dtype: torch.dtype
) -> None:
    case = random_case(3, 40, 65, dtype, has_bias=False)
    expected = bits(operator.run(case))
    poison = random_case(3, 40, 96, dtype, has_bias=False)
    poison.inputs[:] = math.nan
    operands, poisonous = operator.operands(case), operator.operands(poison)
    # One call after the other, so that the second one gets the first one's memory.
    assert operator.call(*poisonous).isnan().all()
    assert torch.equal(bits(operator.call(*operands)), expected)


def test_leading_dimensions_are_kept(operator: LinearOperator) -> None:
    case = random_case(6, 10, 20, torch.float32, has_bias=True)
    flat = operator.run(case)
    for leading in ((6,), (2, 3), (1, 6, 1)):
        inputs = case.inputs.view(*leading, 20)
        result = operator.run(LinearCase(inputs, case.weight, case.bias))
        assert torch.equal(result, flat.view(*leading, 10))
    assert torch.equal(operator.run(LinearCase(case.inputs[0], case.weight, case.bias)), flat[0])


def test_exported_graphs_know_the_result_and_that_nothing_is_changed(
    operator: LinearOperator,
) -> None:
    case = random_case(4, 40, 6, torch.bfloat16, has_bias=True)
    torch.library.opcheck(
        getattr(torch.ops.neuron_llm, operator.name).default,
        operator.operands(case),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no_bias"])
def test_compiled_graphs_get_the_same_bits(
    operator: LinearOperator, library: OperatorLibrary, dtype: torch.dtype, has_bias: bool
) -> None:
    case = random_case(6, 40, 9, dtype, has_bias=has_bias)
    operands = operator.operands(LinearCase(case.inputs.view(2, 3, 9), case.weight, case.bias))
    result = call_shim(library, operator.name, *operands)
    assert result is not None and result.shape == (2, 3, 40)
    assert torch.equal(bits(result), bits(operator.run(case)).view(2, 3, 40))
