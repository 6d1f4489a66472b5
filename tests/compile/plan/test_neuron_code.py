"""The estimate of a Neuron graph's instructions, by hand, and what it is used for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from config_factory import TINY_CONFIG, plan, write_model

from neuron_llm.compile.model.model_spec import spec_from_config
from neuron_llm.compile.plan.neuron_code import estimate_code, estimate_instructions
from neuron_llm.scheduler.buckets import BucketSet, DecodeBucket, PrefillBucket

# Embedding and head are one: of 256 x 64. The layers have 20 tiles of 128 x 128.
MODEL = replace(spec_from_config(TINY_CONFIG), num_parameters=256 * 64 + 20 * 128 * 128)


def test_a_prefill_by_hand() -> None:
    # 1,024 tokens, twice 512 columns, of 4 heads on 2 heads of keys, over 2,048 keys.
    layers, head, hlo = 20 * 2, 1, 2 * 325 * 8
    num_queries = 1024 * 2
    scores, softmax = num_queries // 128 * 4, 8 * (num_queries // 128) * 4
    values = 2048 // 128 * (num_queries // 512)
    attention = 2 * 2 * (scores + softmax + values)
    found = estimate_instructions(PrefillBucket(1024), MODEL, 2048)
    assert found == layers + head + hlo + attention


def test_a_decode_by_hand() -> None:
    # Four rows: the weights move past them, 512 columns at a time. Every row has its own keys.
    layers, head, hlo = 5, 1, 2 * 325
    attention = 2 * 4 * 2 * (2 + 8 * 2 + 8)
    found = estimate_instructions(DecodeBucket(4, 1024), MODEL, 2048)
    assert found == layers + head + hlo + attention


def test_code_is_that_of_all_graphs_and_the_micro_code_of_every_core() -> None:
    buckets = BucketSet(prefill=(PrefillBucket(128),), decode=(DecodeBucket(1, 2048),))
    code = estimate_code(buckets, MODEL, max_model_len=2048, num_physical_cores=2)
    own = sum(code.num_instructions.values()) * 64
    assert code.num_instructions.keys() == {"prefill_t128", "decode_b1_c2048"}
    assert code.total_bytes == own + 2 * 96_000_000


def test_code_counts_where_it_lies_on_the_device(tmp_path: Path) -> None:
    memory = plan(tmp_path, "backend: neuron\nneuron_config:\n  target: trn2\n").memory
    held = memory.num_copies * (memory.weights_bytes + memory.kv_cache_bytes)
    assert memory.total_bytes == held + memory.activation_bytes + memory.code_bytes
    assert ("code", memory.code_bytes) in memory.contributors
    assert memory.shared_bytes == memory.total_bytes - held + held // memory.num_copies
    on_cpu = plan(tmp_path).memory
    assert on_cpu.code_bytes == 0 and on_cpu.graphs[0].num_instructions is None


@pytest.mark.parametrize(("num_tokens", "is_too_long"), [(1024, False), (4096, True)])
def test_a_graph_that_may_be_too_long_for_the_compiler_is_warned_of(
    num_tokens: int, is_too_long: bool, tmp_path: Path
) -> None:
    write_model(
        tmp_path / "model",
        num_hidden_layers=32,
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=14336,
        vocab_size=128256,
        torch_dtype="bfloat16",
        max_position_embeddings=8192,
    )
    found = plan(
        tmp_path,
        f"backend: neuron\nmax_num_seqs: 1\nmax_num_batched_tokens: {num_tokens}\n"
        f"neuron_config:\n  target: trn2\n  num_batched_tokens_buckets: [{num_tokens}]\n"
        f"  kv_segment_size_buckets: [1024]\n  binding: model_builder\n",
    )
    texts = [text for text in found.warnings if "may be too long for neuronx-cc" in text]
    assert len(texts) == is_too_long
    if is_too_long:
        assert texts[0].startswith("prefill_t4096 may be too long for neuronx-cc: about 9.0 mil")
