"""What a configuration file may say: every key, its type, its default and its explanation.

Top-level keys carry vLLM's names, keys of `neuron_config` carry vLLM Neuron's. The models are
frozen, refuse unknown keys and convert nothing: `"8"`, `8.0` and `true` are no whole numbers. Rules
that join several keys, or a key and the model, live in `config_rules.py`.

Each field's description completes the sentence "the value must be ...", and its first example is a
value that passes: the messages about a faulty file are made of both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from neuron_llm.backends.neuron.generations import (
    EXAMPLE_TARGET,
    GENERATIONS,
    LOGICAL_NC_CONFIGS,
)
from neuron_llm.quantities import BYTE_UNITS

# Positions, slots and block ids cross the graph boundary as int32.
MAX_INT32 = 2**31 - 1

AUTO = "auto"

_MEMORY_PATTERN = rf"^(auto|[0-9]{{1,9}}(\.[0-9]{{1,3}})?({'|'.join(BYTE_UNITS)}))$"

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_INT32)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]
LogicalCore = Annotated[int, Field(strict=True, ge=1, le=LOGICAL_NC_CONFIGS[-1])]
Ladder = Annotated[tuple[Count, ...], Field(min_length=1)]
if TYPE_CHECKING:
    Target = str
else:
    Target = Literal[tuple(GENERATIONS)]

_COUNT = "a whole number from 1 to 2147483647"
_SWITCH = "`true` or `false`"
_LADDER = "a list of whole numbers from 1 to 2147483647"
_TARGETS = " and ".join(", ".join(f"`{name}`" for name in GENERATIONS).rsplit(", ", 1))


class OnDeviceSamplingConfig(BaseModel):
    """How a graph that samples on the device does it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    all_greedy: Switch = Field(default=False, description=_SWITCH, examples=[True])
    max_top_k: Annotated[int, Field(strict=True, ge=1, le=256)] = Field(
        default=256, description="a whole number from 1 to 256", examples=[256]
    )
    deterministic: Switch = Field(default=False, description=_SWITCH, examples=[True])


class NeuronConfig(BaseModel):
    """The buckets, and what only the neuron backend reads.

    Attributes:
        num_batched_tokens_buckets: prefill graphs, in tokens; None for powers of two from 128.
        num_seqs_buckets: decode graphs, in rows; None for powers of two from 1.
        decode_context_length_buckets: second dimension of the decode graphs, in tokens, below
            `max_model_len`; None for graphs of the full length only.
        target: the device generation that is compiled for. It fixes the memory budget.
        logical_nc_config: physical cores in one logical core; None for the target's default.
        kv_segment_size_buckets: tokens of prior KV that a prefill graph reads at a time.
        compiler_args: handed to neuronx-cc as they are.
        binding: how graphs get at weights and KV state: each has its own (`trace`), all share them
            (`model_builder`), or whichever the installed packages allow (`auto`).
        on_device_sampling_config: None for graphs that return logits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_batched_tokens_buckets: Ladder | None = Field(
        default=None, description=_LADDER, examples=[[128, 256, 512]]
    )
    num_seqs_buckets: Ladder | None = Field(
        default=None, description=_LADDER, examples=[[1, 2, 4, 8]]
    )
    decode_context_length_buckets: Ladder | None = Field(
        default=None, description=_LADDER, examples=[[512, 1024]]
    )
    target: Target | None = Field(
        default=None, description=f"one of {_TARGETS}", examples=[EXAMPLE_TARGET]
    )
    logical_nc_config: LogicalCore | None = Field(
        default=None,
        description=" or ".join(map(str, LOGICAL_NC_CONFIGS)),
        examples=[LOGICAL_NC_CONFIGS[-1]],
    )
    kv_segment_size_buckets: Ladder | None = Field(
        default=None, description=_LADDER, examples=[[2048]]
    )
    compiler_args: tuple[Text, ...] = Field(
        default=(), description="a list of texts, one for each argument", examples=[["-O1"]]
    )
    binding: Literal["auto", "trace", "model_builder"] = Field(
        default="auto", description="one of `auto`, `trace` and `model_builder`", examples=["auto"]
    )
    on_device_sampling_config: OnDeviceSamplingConfig | None = Field(
        default=None,
        description="a mapping of keys to values, or `null`",
        examples=[{"all_greedy": True}],
    )


class Config(BaseModel):
    """One configuration file.

    Attributes:
        model: a Hugging Face directory, a `.gguf` file, or a hub id together with `revision`.
        revision: branch, tag or commit of a hub id.
        backend: what compiles and runs the graphs.
        dtype: of weights, activations and KV cache; `auto` is the checkpoint's.
        max_model_len: prompt and output together, in tokens; None for all the positions of the
            model.
        max_num_seqs: most requests running together.
        max_num_batched_tokens: most tokens of one prefill step.
        block_size: tokens of one KV block.
        enable_prefix_caching: whether requests share the KV of equal beginnings.
        async_scheduling: whether a step is scheduled while the one before it runs.
        kv_admission: what a request must leave free: what it can itself need at worst (`reserve`),
            or what a request of `max_model_len` can (`max_model_len`).
        max_consecutive_prefills: prefill steps in a row while a decode waits; None for no bound.
        quantization: of the weights; None keeps `dtype`.
        kv_cache_memory: most bytes of KV cache, such as `2GiB`; `auto` for what `max_num_seqs`
            requests of `max_model_len` fill.
        num_gpu_blocks_override: number of KV blocks, the null block included, instead of a budget.
        neuron_config: buckets and device settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Text = Field(
        description="a Hugging Face directory, a `.gguf` file, or a hub id with `revision`",
        examples=["./models/smollm2-135m-instruct"],
    )
    revision: Text | None = Field(default=None, description="text", examples=["main"])
    backend: Literal["cpu", "neuron"] = Field(
        default="cpu", description="`cpu` or `neuron`", examples=["cpu"]
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="one of `auto`, `float32`, `bfloat16` and `float16`",
        examples=["bfloat16"],
    )
    max_model_len: Annotated[int, Field(strict=True, ge=2, le=MAX_INT32)] | None = Field(
        default=None,
        # One token of prompt and one of output is the shortest request there is.
        description="a whole number from 2 to 2147483647",
        examples=[2048],
    )
    max_num_seqs: Count = Field(default=8, description=_COUNT, examples=[8])
    max_num_batched_tokens: Count = Field(default=2048, description=_COUNT, examples=[512])
    block_size: Count = Field(default=32, description=_COUNT, examples=[32])
    enable_prefix_caching: Switch = Field(default=True, description=_SWITCH, examples=[True])
    async_scheduling: Switch = Field(default=False, description=_SWITCH, examples=[False])
    kv_admission: Literal["reserve", "max_model_len"] = Field(
        default="reserve", description="`reserve` or `max_model_len`", examples=["reserve"]
    )
    max_consecutive_prefills: Count | None = Field(default=None, description=_COUNT, examples=[8])
    quantization: Literal["int8"] | None = Field(
        default=None, description="`null`; `int8` is not available in this version", examples=[None]
    )
    kv_cache_memory: Annotated[str, Field(strict=True, pattern=_MEMORY_PATTERN)] = Field(
        default=AUTO, description="`auto`, or a size in KiB, MiB, GiB or TiB", examples=["2GiB"]
    )
    num_gpu_blocks_override: Count | None = Field(default=None, description=_COUNT, examples=[512])
    neuron_config: NeuronConfig = Field(
        default=NeuronConfig(),
        description="a mapping of keys to values",
        examples=[{"num_seqs_buckets": [1, 2, 4, 8]}],
    )

    @property
    def kv_cache_memory_bytes(self) -> int | None:
        """The budget in bytes, or None for `auto`. `1.5KiB` is 1536."""
        match = re.fullmatch(r"([0-9.]+)([KMGT]iB)", self.kv_cache_memory)
        if match is None:
            return None
        return int(float(match[1]) * BYTE_UNITS[match[2]])
