"""What would not be static is noticed when it is lowered: the judge of HLO is no rubber stamp."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hlo_text import hlo_faults
from lowered_graph import GraphCutError, lower

Body = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Function(torch.nn.Module):
    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def forward(self, tokens: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.body(tokens, cache),)


def lowered_text(body: Body) -> str:
    inputs = {"tokens": torch.zeros(3, dtype=torch.int32), "cache": torch.rand(8, 4)}
    return lower(Function(body), inputs).text()


FAULTY: dict[str, tuple[Body, str]] = {
    "a loop": (lambda tokens, cache: torch.linalg.svd(cache)[1], "opcode while"),
    "a custom call": (lambda tokens, cache: torch.logdet(cache.T @ cache), "opcode custom-call"),
    "a python number beside float scores": (
        lambda tokens, cache: cache.masked_fill(cache.isnan(), -3e38),
        "f64: ",
    ),
    "int64 arithmetic": (lambda tokens, cache: (tokens.long() + 1).to(torch.int32), "int64: "),
    "an int64 comparison": (
        lambda tokens, cache: torch.where(tokens >= 0, tokens, tokens),
        "1 int64 comparisons and 0 scatters",
    ),
    "a mask of bytes": (
        lambda tokens, cache: (tokens < tokens[:1]) & (tokens <= tokens[:1]),
        "u8: ",
    ),
    "an int64 output": (lambda tokens, cache: cache.argmax(-1), "int64: "),
}


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_not_for_the_device_is_found_in_the_module(name: str) -> None:
    body, expected = FAULTY[name]
    assert any(expected in fault for fault in hlo_faults(lowered_text(body)))


@pytest.mark.parametrize("body", [lambda t, c: c.nonzero(), lambda t, c: c[c > 0]])
def test_a_shape_that_depends_on_data_cuts_the_graph(body: Body) -> None:
    with pytest.raises(GraphCutError, match="aten::nonzero"):
        lowered_text(body)


def test_randomness_has_a_seed_that_nobody_gives() -> None:
    with pytest.raises(GraphCutError, match="neither inputs nor weights: 1"):
        lowered_text(lambda tokens, cache: torch.multinomial(cache, 1))


def test_a_function_without_faults_has_none() -> None:
    text = lowered_text(lambda tokens, cache: cache.index_put((tokens,), cache[:3]))
    assert hlo_faults(text) == []
