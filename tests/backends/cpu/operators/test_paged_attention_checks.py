"""What `paged_attention` refuses, and that a refused call changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attention_case import PagedCase
from level_libraries import level_library
from shim_call import call_shim, last_error

from neuron_llm.backends.cpu.features import cpu_features
from neuron_llm.backends.cpu.operators.isa import widest_level
from neuron_llm.backends.cpu.operators.library import OperatorLibrary
from neuron_llm.backends.cpu.operators.registration import use_library
from neuron_llm.errors import NeuronLLMError

NAMES = (
    *("query", "key", "value", "key_cache", "value_cache", "positions", "slot_mapping"),
    *("block_tables", "context_lens", "scaling", "softcap", "sliding_window", "sinks"),
)


@pytest.fixture(scope="module", autouse=True)
def library(request: pytest.FixtureRequest) -> OperatorLibrary:
    built = level_library(widest_level(cpu_features()), request.config)
    use_library(built)
    return built


def decode_operands() -> tuple[PagedCase, dict[str, Any]]:
    """Return three rows of contexts 40, 7 and 25, in blocks of 16 of a cache of 7."""
    case = PagedCase([40, 7, 25])
    for index, length in enumerate([40, 7, 25]):
        case.fill(index, length - 1)
    operands = case.operands(case.decode([(0, 39), (1, 6), (2, 24)]))
    return case, dict(zip(NAMES, operands, strict=True))


def setting(name: str, *index: int, to: int) -> Callable[[dict[str, Any]], None]:
    """Return a change of one element of a tensor."""

    def change(operands: dict[str, Any]) -> None:
        operands[name][index] = to

    return change


def replacing(name: str, by: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """Return a change of a whole operand."""

    def change(operands: dict[str, Any]) -> None:
        operands[name] = by(operands[name])

    return change


def non_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


FAULTS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (setting("slot_mapping", 1, to=112), "`slot_mapping[1]` is 112, but the cache has slots 0 to"),
    (setting("slot_mapping", 2, to=-2), "`slot_mapping[2]` is -2, but the cache has slots 0 to"),
    (setting("block_tables", 0, 2, to=7), "`block_tables[0, 2]` is 7, but the cache has blocks 0"),
    (setting("block_tables", 2, 1, to=-1), "`block_tables[2, 1]` is -1, but the cache has blocks"),
    (setting("context_lens", 0, to=49), "`context_lens[0]` is 49, but a row of `block_tables`"),
    (setting("context_lens", 1, to=-1), "`context_lens[1]` is -1, but a row of `block_tables`"),
    (setting("context_lens", 1, to=6), "`positions[1]` is 6, but `context_lens[1]` is 6"),
    (setting("positions", 2, to=25), "`positions[2]` is 25, but `context_lens[2]` is 25"),
    (setting("positions", 0, to=-1), "`positions[0]` is -1, but `context_lens[0]` is 40"),
    (replacing("key", torch.Tensor.half), "`key` is float16, but must be float32"),
    (replacing("value_cache", torch.Tensor.bfloat16), "`value_cache` is bfloat16, but must be"),
    (replacing("query", torch.Tensor.double), "`query` is of another dtype, but must be float32,"),
    (replacing("positions", torch.Tensor.long), "`positions` is of another dtype, but must be"),
    (replacing("block_tables", torch.Tensor.float), "`block_tables` is float32, but must be int32"),
    (replacing("sinks", lambda _: torch.zeros(9).long()), "`sinks` is of another dtype, but must"),
    (replacing("sinks", lambda _: torch.zeros(3)), "`sinks` has shape [3], but must have [9]"),
    (replacing("query", lambda t: t[0]), "`query` has 2 dimensions, but must have 3"),
    (replacing("key_cache", lambda t: t[0]), "`key_cache` has 3 dimensions, but must have 4"),
    (replacing("block_tables", lambda t: t[0]), "`block_tables` has 1 dimensions, but must have 2"),
    (replacing("key", lambda t: t[:2]), "`key` has shape [2, 3, 64], but must have [3, 3, 64]"),
    (replacing("value", lambda t: t[..., :32]), "`value` has shape [3, 3, 32], but must have"),
    (replacing("value_cache", lambda t: t[:5]), "`value_cache` has shape [5, 16, 3, 64], but must"),
    (replacing("query", lambda t: t[..., :32]), "`query` has shape [3, 9, 32], but must have"),
    (replacing("positions", lambda t: t[:2]), "`positions` has shape [2], but must have [3]"),
    (replacing("context_lens", lambda t: t[:1]), "`context_lens` has shape [1], but must have [3]"),
    (replacing("query", lambda t: t[:0]), "`query` is empty: its shape is [0, 9, 64]"),
    (replacing("query", lambda t: t[:, :8]), "`query` has 8 heads, but must have a multiple"),
    (replacing("query", non_contiguous), "`query` has stride 2 in dimension 2, but must have 1"),
    (replacing("key_cache", non_contiguous), "`key_cache` has stride 2 in dimension 3, but must"),
    (
        replacing("value_cache", lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)),
        "`value_cache` has stride 1024 in dimension 2, but must have 64",
    ),
    (replacing("slot_mapping", non_contiguous), "`slot_mapping` has stride 2 in dimension 0, but"),
    (replacing("sliding_window", lambda _: -1), "`sliding_window` is -1, but must not be negative"),
    (replacing("softcap", lambda _: -0.5), "`softcap` is -0.5, but must not be negative"),
    (replacing("softcap", lambda _: float("nan")), "`softcap` is nan, but must not be negative"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_fault_is_named_and_nothing_is_changed(
    library: OperatorLibrary, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    case, operands = decode_operands()
    before = [cache.clone() for cache in (case.key_cache, case.value_cache)]
    change(operands)
    with pytest.raises(NeuronLLMError) as caught:
        torch.ops.neuron_llm.paged_attention(*operands.values())
    assert caught.value.message.startswith(f"paged_attention: {message}")
    assert last_error(library) in caught.value.message
    for cache, old in zip((case.key_cache, case.value_cache), before, strict=True):
        torch.testing.assert_close(cache, old, atol=0, rtol=0, equal_nan=True)


def test_a_table_has_one_row_or_one_for_each_token() -> None:
    _, operands = decode_operands()
    operands["block_tables"] = operands["block_tables"][:2]
    operands["context_lens"] = operands["context_lens"][:2]
    with pytest.raises(NeuronLLMError, match="2 rows, but must have 1 or one for each of 3 tokens"):
        torch.ops.neuron_llm.paged_attention(*operands.values())


@pytest.mark.parametrize("head_dim", [12, 520])
def test_sizes_of_heads_that_no_kernel_takes_are_refused(head_dim: int) -> None:
    _, operands = decode_operands()
    for name in ("query", "key", "value", "key_cache", "value_cache"):
        shape = (*operands[name].shape[:-1], head_dim)
        operands[name] = torch.zeros(shape)
    with pytest.raises(NeuronLLMError, match=f"head_dim {head_dim}, but must have a multiple of 8"):
        torch.ops.neuron_llm.paged_attention(*operands.values())


def test_padding_may_hold_any_position() -> None:
    case = PagedCase([20])
    arguments = case.prefill(0, 0, 20, num_padded=3)
    arguments.positions[20:] = torch.tensor([-1, 10**9, 20])
    case.check(case.run(arguments)[:20], 0, list(range(20)))


@pytest.mark.parametrize("has_sinks", [False, True])
def test_the_shim_of_compiled_graphs_gives_the_same_bits(
    library: OperatorLibrary, has_sinks: bool
) -> None:
    outputs = []
    for run in (torch.ops.neuron_llm.paged_attention, None):
        case, operands = decode_operands()
        operands["sinks"] = torch.linspace(-1, 1, 9) if has_sinks else None
        operands["sliding_window"] = 20
        if run is not None:
            outputs.append(run(*operands.values()))
        else:
            outputs.append(call_shim(library, "paged_attention", *operands.values()))
        assert not case.key_cache.flatten(0, 1)[operands["slot_mapping"].long()].isnan().any()
    assert torch.equal(*outputs)


def test_a_failing_shim_leaves_its_message(library: OperatorLibrary) -> None:
    _, operands = decode_operands()
    operands["slot_mapping"][0] = 1000
    assert call_shim(library, "paged_attention", *operands.values()) is None
    assert last_error(library).startswith("`slot_mapping[0]` is 1000, but the cache has slots")
