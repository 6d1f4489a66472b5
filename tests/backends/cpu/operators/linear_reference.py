"""Linear layers in float64, what a result in fewer bits may differ from them, and the operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from neuron_llm.backends.cpu.operators.packing import pack_weight

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# The greatest relative change by rounding to nearest.
_ROUNDING = {torch.float32: 2**-24, torch.bfloat16: 2**-8, torch.float16: 2**-11}


@dataclass(frozen=True)
class LinearCase:
    """The operands of one linear layer.

    Attributes:
        inputs: `[num_rows, in_features]`.
        weight: `[out_features, in_features]`.
        bias: `[out_features]`, or none.
    """

    inputs: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None

    def check(self, result: torch.Tensor) -> None:
        """Assert that a result is the exact one, rounded, but for float32's error of the sum."""
        assert result.dtype == self.inputs.dtype and result.is_contiguous()
        inputs, weight = self.inputs.double(), self.weight.double()
        exact, magnitude = inputs @ weight.T, inputs.abs() @ weight.abs().T
        if self.bias is not None:
            exact, magnitude = exact + self.bias.double(), magnitude + self.bias.double().abs()
        # A sum of n terms errs by about sqrt(n) roundings; bfloat16 products below 2**-126 are 0.
        error_of_sum = 2**-21 * magnitude + inputs.shape[1] * 2**-126
        tolerance = _ROUNDING[result.dtype] * exact.abs() + error_of_sum
        if result.dtype == torch.float16:
            tolerance += 2**-25  # half the last bit of subnormal numbers
        assert result.shape == exact.shape
        assert ((result.double() - exact).abs() <= tolerance).all()


def random_case(
    num_rows: int, out_features: int, in_features: int, dtype: torch.dtype, *, has_bias: bool
) -> LinearCase:
    """Return operands of normally distributed numbers, the same for the same arguments."""
    generator = torch.Generator().manual_seed(num_rows + 7 * out_features + 11 * in_features)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    return LinearCase(
        inputs=numbers(num_rows, in_features),
        weight=numbers(out_features, in_features),
        bias=numbers(out_features) if has_bias else None,
    )


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bits as integers, so that NaN equals NaN and 0 is not -0."""
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


@dataclass(frozen=True)
class LinearOperator:
    """One of the two operators, called with a weight as checkpoints store it.

    Attributes:
        name: in `torch.ops.neuron_llm`, and of its C function.
        shapes: output and input features around the edges of its panels, blocks and tiles.
        many_rows: numbers of rows around the edges of its blocks of rows.
    """

    name: str
    shapes: tuple[tuple[int, int], ...]
    many_rows: tuple[int, ...]

    def operands(self, case: LinearCase) -> tuple[Any, ...]:
        """Return what the operator is called with."""
        if self.name == "linear":
            return case.inputs, case.weight, case.bias
        return case.inputs, pack_weight(case.weight), case.bias, case.weight.shape[0]

    def call(self, *operands: Any) -> torch.Tensor:
        """Return the operator's result."""
        result: torch.Tensor = getattr(torch.ops.neuron_llm, self.name)(*operands)
        return result

    def run(self, case: LinearCase) -> torch.Tensor:
        """Return the operator's result for a case."""
        return self.call(*self.operands(case))


# Tiles are 4 outputs and 3 or 6 rows; vectors hold 4 to 32 inputs.
ROW_MAJOR = LinearOperator(
    "linear", ((1, 1), (3, 7), (4, 64), (33, 95), (70, 513), (5, 2048)), (48, 49, 145)
)
# Panels are 32 outputs, blocks 512 words of inputs, tiles 6 or 12 rows.
PACKED = LinearOperator(
    "linear_packed",
    ((1, 1), (31, 7), (32, 64), (33, 511), (70, 513), (96, 1025), (5, 2048)),
    (144, 145, 431),
)
