"""The least time of a step on a device, by what it must read and compute. Knows no torch.

    seconds = max(bytes / bandwidth, operations / peak) + overhead

A bound and no forecast: no graph is faster, and real ones reach a good part of it. A step reads all
weights, save an input embedding that is not the output projection too, and the keys and values that
its queries attend to. It does two operations for each weight that a token goes through, two for
each weight of the output projection in each row of logits, and for each query and key, four times
the width of all heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuron_llm.backends.neuron.generations import GENERATIONS
from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.errors import NeuronLLMError
from neuron_llm.quantities import DTYPE_BYTES
from neuron_llm.report.step_time.step_times import StepTime, StepTimeSource
from neuron_llm.scheduler.buckets import Bucket, PrefillBucket

DEFAULT_STEP_OVERHEAD_S = 1e-3
"""What the host adds to a step: to schedule it, prepare its inputs, sample and update.

Measured at 0.8 ms with four rows on the CPU; what starting a graph on a device adds is not known.
"""


@dataclass(frozen=True)
class RooflineDevice:
    """What a graph runs on.

    Attributes:
        name: of the target.
        bytes_per_s: memory bandwidth.
        flops_per_s: peak in 16-bit floats.
        float32_flops_per_s: peak in 32-bit floats.
        reads_whole_context: a graph reads the context that it is compiled for; otherwise only the
            live tokens.
    """

    name: str
    bytes_per_s: float
    flops_per_s: float
    float32_flops_per_s: float
    reads_whole_context: bool = True


# Measured on two cores of a server CPU with AVX512: streaming reads, and the best matrix products.
_CPU = RooflineDevice("cpu", 30e9, 370e9, 119e9, reads_whole_context=False)

ROOFLINE_TARGETS = ("cpu", *GENERATIONS)


def roofline_device(target: str, logical_nc_config: int | None = None) -> RooflineDevice:
    """Return a target's figures: those of one logical core, on which an artifact runs, or a CPU's.

    Args:
        target: one of `ROOFLINE_TARGETS`.
        logical_nc_config: physical cores in the logical core; None for the target's default.

    Raises:
        NeuronLLMError: there are no figures of such a target.
    """
    if target == "cpu":
        return _CPU
    if target not in GENERATIONS:
        known = ", ".join(f"`{name}`" for name in ROOFLINE_TARGETS)
        raise NeuronLLMError(
            f"there are no figures of the target `{target}`", hint=f"name one of {known}"
        )
    chip = GENERATIONS[target]
    share = (logical_nc_config or chip.default_logical_nc_config) / chip.num_cores
    return RooflineDevice(
        target,
        bytes_per_s=chip.bytes_per_s * share,
        flops_per_s=chip.flops_per_s * share,
        float32_flops_per_s=chip.float32_flops_per_s * share,
    )


class RooflineStepTimes:
    """The bound for each graph of a model on a device.

    Where a graph reads the context that it is compiled for, that is the bucket's in a decode, and
    `max_model_len` in a prefill. Where it reads live tokens, a decode reads `live_context_tokens`
    in each row, and a token of a prefill half the bucket, since it sees only those before it.

    Args:
        model: sizes of the layers; sliding windows are not looked at.
        dtype: of weights, activations and KV cache.
        device: figures from `roofline_device`.
        max_model_len: prompt and output together, in tokens.
        live_context_tokens: how many tokens a decoding request has on average; None for as many as
            the bucket takes.
        overhead_s: what the host adds to each step.
    """

    def __init__(
        self,
        model: ModelSpec,
        dtype: str,
        device: RooflineDevice,
        *,
        max_model_len: int,
        live_context_tokens: int | None = None,
        overhead_s: float = DEFAULT_STEP_OVERHEAD_S,
    ) -> None:
        self._model, self._device = model, device
        self._max_model_len = max_model_len
        self._live_context_tokens = live_context_tokens
        self._overhead_s = overhead_s
        is_float32 = dtype == "float32"
        self._flops_per_s = device.float32_flops_per_s if is_float32 else device.flops_per_s
        self._kv_token_bytes = model.kv_block_bytes(1, dtype)
        ends = model.vocab_size * model.hidden_size
        unread = 0 if model.tie_word_embeddings else ends * DTYPE_BYTES[dtype]
        self._weights_bytes = model.weights_bytes(dtype) - unread

    def step_time(self, bucket: Bucket) -> StepTime:
        """Return the bound for a step of the bucket."""
        if isinstance(bucket, PrefillBucket):
            num_tokens, num_rows = bucket.num_tokens, 1
            num_keys = self._prefill_keys(bucket.num_tokens)
        else:
            num_tokens = num_rows = bucket.batch_size
            num_keys = self._decode_keys(bucket.max_context_tokens)
        num_bytes = self._weights_bytes + num_rows * num_keys * self._kv_token_bytes
        flops = self._flops(num_tokens, num_rows, num_keys)
        seconds = max(num_bytes / self._device.bytes_per_s, flops / self._flops_per_s)
        return StepTime(seconds + self._overhead_s, StepTimeSource.ROOFLINE)

    def _prefill_keys(self, num_tokens: int) -> float:
        return self._max_model_len if self._device.reads_whole_context else num_tokens / 2

    def _decode_keys(self, max_context_tokens: int) -> int:
        if self._device.reads_whole_context or self._live_context_tokens is None:
            return max_context_tokens
        return min(self._live_context_tokens, max_context_tokens)

    def _flops(self, num_tokens: int, num_rows: int, num_keys: float) -> float:
        model = self._model
        attention = 2 * model.hidden_size * model.head_dim * (model.num_heads + model.num_kv_heads)
        mlp = 3 * model.hidden_size * model.intermediate_size
        flops = 2 * num_tokens * model.num_layers * (attention + mlp)
        flops += 2 * num_rows * model.vocab_size * model.hidden_size
        head_keys = num_keys * model.num_layers * model.num_heads * model.head_dim
        return flops + 4 * num_tokens * head_keys
