from pathlib import Path

from config_factory import TINY_CONFIG, plan

from neuron_llm.compile.model.model_spec import spec_from_config
from neuron_llm.compile.plan.memory import estimate_activation_bytes
from neuron_llm.scheduler.buckets import DecodeBucket, PrefillBucket

MODEL = spec_from_config(TINY_CONFIG)


def test_activations_of_a_prefill_by_hand() -> None:
    # 16 tokens: two residuals of 64, then the widest of 12 heads of 16, 3 MLP rows of 128, logits.
    expected = 2 * 16 * 64 * 4 + max(16 * 12 * 16 * 4, 3 * 16 * 128 * 4, 256 * 4)
    assert estimate_activation_bytes(PrefillBucket(16), MODEL, "float32", None) == expected


def test_logits_of_a_decode_are_counted_for_every_row() -> None:
    small = estimate_activation_bytes(DecodeBucket(4, 64), MODEL, "bfloat16", None)
    assert small == 2 * 4 * 64 * 2 + max(4 * 12 * 16 * 2, 3 * 4 * 128 * 2, 4 * 256 * 4)


def test_attention_in_place_does_not_grow_with_the_context() -> None:
    sizes = {
        estimate_activation_bytes(DecodeBucket(4, context), MODEL, "float32", None)
        for context in (128, 1024, 4096)
    }
    assert len(sizes) == 1


def test_gathered_keys_and_scores_grow_with_the_context() -> None:
    short = estimate_activation_bytes(DecodeBucket(4, 1024), MODEL, "float32", 4096)
    long = estimate_activation_bytes(DecodeBucket(4, 2048), MODEL, "float32", 4096)
    # 1024 more keys: K and V of 2 heads x 16 for 4 rows, and one score for each of 4 x 4 heads.
    assert long - short == 1024 * (2 * 4 * 2 * 16 * 4 + 4 * 4 * 4)


def test_segments_bound_the_scores_of_a_prefill() -> None:
    whole = estimate_activation_bytes(PrefillBucket(2048), MODEL, "float32", 65536)
    segment = estimate_activation_bytes(PrefillBucket(2048), MODEL, "float32", 2048)
    assert segment < whole / 10


def test_prefill_is_not_estimated_at_the_decode_batch(tmp_path: Path) -> None:
    few, many = (
        plan(tmp_path, f"max_num_seqs: {num_seqs}\nmax_num_batched_tokens: 512\n").memory
        for num_seqs in (1, 64)
    )
    by_name = [{graph.name: graph.activation_bytes for graph in m.graphs} for m in (few, many)]
    assert by_name[0]["prefill_t512"] == by_name[1]["prefill_t512"]


def test_graphs_share_weights_cache_and_the_one_greatest_peak(tmp_path: Path) -> None:
    memory = plan(tmp_path, "max_num_batched_tokens: 512\n").memory
    assert [graph.name for graph in memory.graphs] == [
        "prefill_t128",
        "prefill_t256",
        "prefill_t512",
        "decode_b1_c4096",
        "decode_b2_c4096",
        "decode_b4_c4096",
        "decode_b8_c4096",
    ]
    assert memory.activation_bytes == memory.graphs[2].activation_bytes
    assert memory.weights_bytes == MODEL.num_parameters * 4
    assert memory.total_bytes == (
        memory.weights_bytes + memory.kv_cache_bytes + memory.activation_bytes
    )
    assert memory.contributors == [
        ("KV cache", memory.kv_cache_bytes),
        ("activations of prefill_t512", memory.activation_bytes),
        ("weights", memory.weights_bytes),
    ]
