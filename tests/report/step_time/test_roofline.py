"""The least time of a step, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from neuron_llm.compile.model.model_spec import ModelSpec
from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.step_time.roofline import (
    ROOFLINE_TARGETS,
    RooflineDevice,
    RooflineStepTimes,
    roofline_device,
)
from neuron_llm.report.step_time.step_times import StepTimeSource
from neuron_llm.scheduler.buckets import Bucket, DecodeBucket, PrefillBucket

# The attention of a layer has 2 * 8 * 8 * (2 + 1) = 384 weights, its MLP 3 * 8 * 4 = 96, and each
# end 10 * 8 = 80. A token's keys and values are 2 * 2 * 1 * 8 = 32 numbers.
SIZES = {
    "model_type": "llama",
    "architectures": ("LlamaForCausalLM",),
    "num_layers": 2,
    "hidden_size": 8,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 8,
    "vocab_size": 10,
    "intermediate_size": 4,
    "max_position_embeddings": 512,
    "dtype": "bfloat16",
    "sliding_window": None,
    "eos_token_ids": (),
    "has_exact_num_parameters": False,
}
UNTIED = ModelSpec(**SIZES, tie_word_embeddings=False, num_parameters=2 * 480 + 160)  # type: ignore[arg-type]
TIED = ModelSpec(**SIZES, tie_word_embeddings=True, num_parameters=2 * 480 + 80)  # type: ignore[arg-type]

READING = RooflineDevice("reading", 1.0, 1e12, 1e12)
COMPUTING = RooflineDevice("computing", 1e12, 2.0, 1.0)
LIVE = RooflineDevice("live", 1.0, 1e12, 1e12, reads_whole_context=False)


def seconds(
    device: RooflineDevice,
    bucket: Bucket,
    model: ModelSpec = TIED,
    dtype: str = "bfloat16",
    live: int | None = None,
) -> float:
    times = RooflineStepTimes(
        model, dtype, device, max_model_len=256, live_context_tokens=live, overhead_s=0.0
    )
    time = times.step_time(bucket)
    assert time.source is StepTimeSource.ROOFLINE
    return time.seconds


@pytest.mark.parametrize("model", [TIED, UNTIED])
@pytest.mark.parametrize(("dtype", "itemsize"), [("bfloat16", 2), ("float32", 4)])
def test_a_decode_reads_weights_and_the_context_of_every_row(
    model: ModelSpec, dtype: str, itemsize: int
) -> None:
    expected = itemsize * (2 * 480 + 80 + 4 * 128 * 32)
    assert seconds(READING, DecodeBucket(4, 128), model, dtype) == expected


def test_a_prefill_reads_the_longest_context_once() -> None:
    assert seconds(READING, PrefillBucket(64)) == 2 * (1040 + 256 * 32)


def test_a_graph_that_reads_live_tokens_reads_no_more() -> None:
    assert seconds(LIVE, DecodeBucket(4, 128), live=20) == 2 * (1040 + 4 * 20 * 32)
    assert seconds(LIVE, DecodeBucket(4, 128), live=500) == 2 * (1040 + 4 * 128 * 32)
    assert seconds(LIVE, DecodeBucket(4, 128)) == 2 * (1040 + 4 * 128 * 32)
    assert seconds(LIVE, PrefillBucket(64)) == 2 * (1040 + 32 * 32)


def test_operations_are_counted_where_they_take_longer() -> None:
    # Two per weight and token, two per weight of the projection and row of logits, and four per
    # query and key in each of two layers of two heads of 8.
    prefill = 64 * 2 * 960 + 2 * 80 + 4 * 64 * 256 * 32
    assert seconds(COMPUTING, PrefillBucket(64)) == prefill / 2
    assert seconds(COMPUTING, PrefillBucket(64), dtype="float32") == prefill
    decode = 4 * (2 * 960 + 2 * 80 + 4 * 128 * 32)
    assert seconds(COMPUTING, DecodeBucket(4, 128)) == decode / 2


def test_the_host_adds_to_every_step() -> None:
    times = RooflineStepTimes(TIED, "bfloat16", READING, max_model_len=256, overhead_s=7.0)
    assert times.step_time(DecodeBucket(1, 128)).seconds == 7 + 2 * (1040 + 128 * 32)


@pytest.mark.parametrize(
    ("target", "cores", "bytes_per_s", "flops_per_s"),
    [
        ("inf2", None, 410 * 2**30, 95e12),
        ("trn1", None, 410 * 2**30, 95e12),
        ("trn2", None, 725e9, 166.75e12),
        ("trn2", 1, 362.5e9, 83.375e12),
        ("cpu", None, 30e9, 370e9),
    ],
)
def test_a_target_is_a_logical_core(
    target: str, cores: int | None, bytes_per_s: float, flops_per_s: float
) -> None:
    device = roofline_device(target, cores)
    assert device.bytes_per_s == pytest.approx(bytes_per_s)
    assert device.flops_per_s == pytest.approx(flops_per_s)
    assert device.reads_whole_context == (target != "cpu")


def test_a_135m_model_decodes_at_111_tokens_a_second_on_the_cpu() -> None:
    sizes = {**SIZES, "num_layers": 30, "hidden_size": 576, "num_heads": 9, "num_kv_heads": 3}
    sizes |= {"head_dim": 64, "vocab_size": 49152, "intermediate_size": 1536}
    model = ModelSpec(**sizes, tie_word_embeddings=True, num_parameters=134_515_008)  # type: ignore[arg-type]
    step = seconds(roofline_device("cpu"), DecodeBucket(1, 2048), model, live=1)
    assert 1 / step == pytest.approx(111, abs=1)


def test_every_target_has_figures_and_no_other_has() -> None:
    assert all(roofline_device(target).bytes_per_s > 0 for target in ROOFLINE_TARGETS)
    with pytest.raises(NeuronLLMError, match="no figures of the target `h100`") as caught:
        roofline_device("h100")
    assert caught.value.hint is not None and "`trn2`" in caught.value.hint
