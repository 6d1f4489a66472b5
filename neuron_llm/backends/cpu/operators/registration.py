"""The operators as torch knows them, under the namespace `neuron_llm`.

Importing this module defines them. Graphs can be exported right away; to compute anything, the CPU
implementations need a loaded library, which `use_library` gives to `LIBRARY_IN_USE`, the registry
that every call looks it up in. A compiled graph calls the library itself and needs none of this.
"""

from __future__ import annotations

import torch

from neuron_llm.backends.cpu.operators.interface import (
    LinearStruct,
    PagedAttentionStruct,
    tensor_struct,
)
from neuron_llm.backends.cpu.operators.library import OperatorLibrary


class LibraryRegistry:
    """Holds the library that eager calls of the operators run in."""

    def __init__(self) -> None:
        self._library: OperatorLibrary | None = None

    def use(self, library: OperatorLibrary) -> None:
        """Let calls run in `library` from now on."""
        self._library = library

    @property
    def library(self) -> OperatorLibrary:
        """The library in use; there must be one."""
        assert self._library is not None, "`use_library` has not been called"
        return self._library


LIBRARY_IN_USE = LibraryRegistry()


def use_library(library: OperatorLibrary) -> None:
    """Let eager calls of the operators run in `library` from now on."""
    LIBRARY_IN_USE.use(library)


torch.library.define(
    "neuron_llm::paged_attention",
    "(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache,"
    " Tensor positions, Tensor slot_mapping, Tensor block_tables, Tensor context_lens,"
    " float scaling, float softcap, int sliding_window, Tensor? sinks) -> Tensor",
)


def _paged_attention_fake(query: torch.Tensor, *_: object) -> torch.Tensor:
    return query.new_empty(query.shape)


torch.library.register_fake("neuron_llm::paged_attention", _paged_attention_fake)


@torch.library.impl("neuron_llm::paged_attention", "CPU")
def _paged_attention_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    positions: torch.Tensor,
    slot_mapping: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scaling: float,
    softcap: float,
    sliding_window: int,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Write a step's keys and values into the caches, then attend over the live contexts.

    What `attention.py` computes, save that padded tokens give zeros. Scores and sums are float32;
    a row's bits depend on its own context alone, be it a row of a prefill or of a decode.

    Args:
        query: `[num_tokens, num_heads, head_dim]`, float32, bfloat16 or float16 like all the
            others; head_dim a multiple of 8 up to 512, its elements next to each other.
        key: `[num_tokens, num_kv_heads, head_dim]`.
        value: the same shape as `key`.
        key_cache: `[num_blocks, block_size, num_kv_heads, head_dim]` contiguous, written in place.
        value_cache: the same for the values.
        positions: `[num_tokens]` int32, each less than its sequence's context length.
        slot_mapping: `[num_tokens]` int32, -1 for padding.
        block_tables: `[num_tokens, max_blocks]` int32, where token i is row i, or
            `[1, max_blocks]`, where all tokens are the one row's. Tokens of a call see each other.
        context_lens: as many int32, the call's tokens included; 0 gives zeros.
        scaling: factor on the scores.
        softcap: `softcap * tanh(score / softcap)`, or 0.
        sliding_window: number of keys that a token sees, itself included, or 0 for all.
        sinks: `[num_heads]` extra logits of any floating dtype that take probability and give
            nothing, or None.

    Returns:
        `[num_tokens, num_heads, head_dim]` contiguous.

    Raises:
        NeuronLLMError: names the tensor that breaks a rule; the caches are as they were.
    """
    output = query.new_empty(query.shape)
    arguments = PagedAttentionStruct(
        query=tensor_struct(query),
        key=tensor_struct(key),
        value=tensor_struct(value),
        key_cache=tensor_struct(key_cache),
        value_cache=tensor_struct(value_cache),
        positions=tensor_struct(positions),
        slot_mapping=tensor_struct(slot_mapping),
        block_tables=tensor_struct(block_tables),
        context_lens=tensor_struct(context_lens),
        sinks=tensor_struct(sinks),
        output=tensor_struct(output),
        scaling=scaling,
        softcap=softcap,
        sliding_window=sliding_window,
    )
    LIBRARY_IN_USE.library.call("paged_attention", arguments)
    return output


torch.library.define("neuron_llm::linear", "(Tensor input, Tensor weight, Tensor? bias) -> Tensor")
torch.library.define(
    "neuron_llm::linear_packed",
    "(Tensor input, Tensor weight, Tensor? bias, int out_features) -> Tensor",
)


def _linear_fake(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    return inputs.new_empty((*inputs.shape[:-1], weight.shape[0]))


torch.library.register_fake("neuron_llm::linear", _linear_fake)


def _linear_packed_fake(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out_features: int
) -> torch.Tensor:
    return inputs.new_empty((*inputs.shape[:-1], out_features))


torch.library.register_fake("neuron_llm::linear_packed", _linear_packed_fake)


@torch.library.impl("neuron_llm::linear", "CPU")
def _linear_cpu(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    return _run_linear("linear", inputs, weight, bias, weight.shape[0])


@torch.library.impl("neuron_llm::linear_packed", "CPU")
def _linear_packed_cpu(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out_features: int
) -> torch.Tensor:
    return _run_linear("linear_packed", inputs, weight, bias, out_features)


def _run_linear(
    operator: str,
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out_features: int,
) -> torch.Tensor:
    output = inputs.new_empty((*inputs.shape[:-1], out_features))
    arguments = LinearStruct(
        input=tensor_struct(inputs),
        weight=tensor_struct(weight),
        bias=tensor_struct(bias),
        output=tensor_struct(output),
    )
    LIBRARY_IN_USE.library.call(operator, arguments)
    return output
